// The look of the page, in light and dark.

extension TimelinePage {
    static let style = """
        :root { color-scheme: light dark; --back: #f5f4f0; --card: #fff; --ink: #1d2126; --quiet: #5d646a; --rule: #e4e2dc; --accent: #0b7a75;
          --band: #f7f6f3; --run: #c3c9cf; --pass: #d6dade; --sleep: #e3e8ec; --onspan: #fff; --warn: #a85b00; }
        @media (prefers-color-scheme: dark) { :root { --back: #101316; --card: #181c20; --ink: #e8eaec; --quiet: #9aa3ab; --rule: #2a3036;
          --accent: #4fd1c5; --band: #14181b; --run: #4a535c; --pass: #3a4249; --sleep: #262d34; --onspan: #101316; --warn: #f0b35a; } }
        * { box-sizing: border-box; }
        [hidden] { display: none !important; }
        body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans",
          "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
        main { max-width: 1280px; margin: 0 auto; padding: 28px 24px 48px; }
        h1, h2, h3, p, dl, dd { margin: 0; }
        h1 { font-size: 26px; line-height: 1.2; letter-spacing: -.01em; overflow-wrap: anywhere; max-height: 4.8em; overflow: auto; }
        h2 { font-size: 18px; line-height: 1.3; } h3 { font-size: 14px; font-weight: 600; }
        .lede { font-size: 17px; max-width: 70ch; margin: 12px 0 20px; text-wrap: pretty; }
        .quiet { color: var(--quiet); } .small { font-size: 13px; }
        .notice { margin: 0 0 16px; padding: 12px 16px; border-radius: 10px; border-left: 4px solid var(--warn); background: var(--card); }
        .card, .tile { background: var(--card); border: 1px solid var(--rule); border-radius: 14px; padding: 16px 18px; min-width: 0; }
        .card { margin-top: 16px; } .card > h2 + .quiet { max-width: 80ch; margin: 4px 0 10px; font-size: 14px; text-wrap: pretty; }
        .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 16px; }
        .tile h3 { font-size: 13px; font-weight: 500; color: var(--quiet); }
        .tile b, .tile .go { font-size: 26px; font-weight: 650; line-height: 1.35; letter-spacing: -.02em; }
        .tile p { font-size: 13px; line-height: 1.4; overflow-wrap: anywhere; }
        button { font: inherit; color: inherit; cursor: pointer; }
        .go { border: 0; background: none; padding: 0; color: var(--accent); font-weight: 600; text-align: left; }
        .go:hover { text-decoration: underline; } .go[aria-pressed=true] { text-decoration: underline; text-decoration-thickness: 3px; }
        :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
        select { font: inherit; max-width: 60vw; } label { display: inline-block; margin-bottom: 12px; }
        .bar-of-tools { display: flex; justify-content: space-between; align-items: center; margin-bottom: 10px; gap: 12px; }
        .tools { display: flex; gap: 4px; }
        .tools button { min-width: 38px; height: 34px; border: 1px solid var(--rule); border-radius: 8px; background: var(--band);
          padding: 0 10px; }
        .tools button:hover { border-color: var(--quiet); }
        canvas { display: block; width: 100%; }
        #overview { cursor: pointer; touch-action: none; border-radius: 6px; margin-bottom: 6px; height: 44px; }
        #timeline { position: relative; cursor: grab; touch-action: pan-y; max-height: 75vh; overflow: hidden auto; user-select: none;
          -webkit-user-select: none; }
        #timeline:active { cursor: grabbing; } #overlay { position: absolute; top: 0; left: 0; }
        #hint { margin-top: 8px; }
        #details { margin-top: 12px; padding-top: 12px; border-top: 1px solid var(--rule); min-height: 190px; }
        #details dl { display: flex; flex-wrap: wrap; gap: 4px 28px; margin: 8px 0; }
        #details dt { font-size: 12px; color: var(--quiet); } #details dd { overflow-wrap: anywhere; }
        .links { display: flex; flex-wrap: wrap; gap: 4px 20px; margin-top: 6px; }
        .links .go { overflow-wrap: anywhere; }
        #tip { position: fixed; z-index: 1; pointer-events: none; max-width: min(420px, 90vw); padding: 6px 10px; border-radius: 8px;
          background: var(--ink); color: var(--back); font-size: 13px; line-height: 1.4; overflow-wrap: anywhere; }
        .chip { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 8px; flex: none;
          vertical-align: -1px; box-shadow: inset 0 0 0 1px #8886; }
        .chip.callout { background: linear-gradient(90deg, #d9480f 33%, #1971c2 33% 66%, #2b8a3e 66%); }
        .guide > p { margin: 6px 0 12px; }
        .guide dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(360px, 100%), 1fr)); gap: 12px 28px; font-size: 14px; }
        .guide dt { font-weight: 600; } .guide dd { color: var(--quiet); margin-left: 20px; text-wrap: pretty; } #legend { margin-top: 12px; }
        .scroll { overflow-x: auto; }
        table { border-collapse: collapse; width: 100%; font-size: 14px; }
        th { text-align: left; font-weight: 500; color: var(--quiet); font-size: 13px; padding: 4px 16px 4px 0; white-space: nowrap; }
        td { border-top: 1px solid var(--rule); padding: 6px 16px 6px 0; vertical-align: top; white-space: nowrap; }
        td:last-child, th:last-child { padding-right: 0; }
        table bdi { white-space: normal; overflow-wrap: anywhere; }
        .what { min-width: 160px; } .what > div { display: flex; align-items: baseline; } .what b { font-weight: 600; }
        .what .quiet { font-size: 13px; margin-left: 20px; } .what bdi { overflow-wrap: anywhere; max-height: 6em; overflow: auto; }
        .share { display: flex; align-items: center; gap: 10px; }
        .bar { display: inline-block; width: clamp(60px, 11vw, 150px); height: 12px; border-radius: 3px; background: var(--band); }
        .fill { display: block; height: 100%; border-radius: 3px; background: var(--accent); }
        .fill[data-kind=sleep], .fill[data-kind=pass] { background: var(--quiet) !important; }
        @media (min-width: 1000px) { .pair { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; } .pair > * { min-width: 0; } }
        @media (min-width: 1000px) and (max-width: 1249px) { .uneven { display: block; } }
        @media (min-width: 1250px) { .uneven { grid-template-columns: 2fr 3fr; } }
        .card > h3 { margin: 18px 0 4px; }
        @media (max-width: 640px) { main { padding: 18px 10px 32px; } h1 { font-size: 22px; } .lede { font-size: 16px; }
          .card, .tile { padding: 12px; border-radius: 10px; } .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
          .tile b, .tile .go { font-size: 21px; } td, th { padding-right: 10px; } .bar { width: 16vw; min-width: 40px; }
          .what .quiet { margin-left: 0; } }
        @media print { #timeline { max-height: none; } }
        """
}
