// The look of the status page, in light and dark.

extension StatusPage {
    static let style = """
        :root { color-scheme: light dark; --back: #f5f4f0; --card: #fff; --ink: #1d2126; --quiet: #62696f; --rule: #e4e2dc;
          --accent: #0b7a75; --soft: #0b7a7522; --track: #e9e7e1; --good: #1c7c3f; --warn: #a85b00; --bad: #b3261e; }
        @media (prefers-color-scheme: dark) { :root { --back: #101316; --card: #181c20; --ink: #e8eaec; --quiet: #98a1a9; --rule: #2a3036;
          --accent: #4fd1c5; --soft: #4fd1c526; --track: #2a3036; --good: #5fd38a; --warn: #f0b35a; --bad: #ff8a80; } }
        * { box-sizing: border-box; }
        body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans",
          "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
        main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 48px; }
        h1, h2, h3, p, dl, dd { margin: 0; }
        h1 { font-size: 26px; letter-spacing: -.01em; line-height: 1.2; }
        .quiet { color: var(--quiet); overflow-wrap: anywhere; }
        .title { display: flex; align-items: center; gap: 12px; flex-wrap: wrap; margin-bottom: 4px; }
        .mark { width: 32px; height: 32px; fill: none; stroke: var(--accent); stroke-width: 3.2;
          stroke-linecap: round; stroke-linejoin: round; }
        .pill { font-size: 13px; font-weight: 600; padding: 2px 12px; border-radius: 99px;
          border: 1px solid currentColor; color: var(--quiet); }
        .pill.serving { color: var(--good); } .pill.draining { color: var(--warn); } .pill.lost { color: var(--bad); }
        .lede { font-size: 17px; max-width: 62ch; margin: 20px 0 24px; text-wrap: pretty; }
        #notice, .notice { margin: 0 0 20px; padding: 12px 16px; border-radius: 10px;
          border-left: 4px solid var(--warn); background: var(--card); }
        #notice.lost { border-color: var(--bad); }
        .lost-contact .totals, .lost-contact #loops { opacity: .5; filter: grayscale(1); }
        .totals { display: grid; grid-template-columns: 2fr 1fr 1fr 1fr; gap: 16px; margin-bottom: 16px; }
        .tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 14px; padding: 16px 18px; min-width: 0; }
        .tile h2, .chart h3 { font-size: 13px; font-weight: 500; color: var(--quiet); }
        .tile b { font-size: 30px; font-weight: 650; line-height: 1.25; letter-spacing: -.02em; white-space: nowrap; }
        .row { display: flex; align-items: end; gap: 20px; }
        .line { flex: 1; min-width: 0; height: 38px; }
        svg.spark { display: block; width: 100%; height: 100%; overflow: visible; }
        .spark .area { fill: var(--soft); stroke: none; }
        .spark .edge { fill: none; stroke: var(--accent); stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round;
          vector-effect: non-scaling-stroke; }
        #loops { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(320px, 100%), 1fr)); gap: 16px; align-items: stretch; }
        @media (min-width: 861px) { #loops.pairs { grid-template-columns: 1fr 1fr; } }
        .head { display: flex; gap: 16px; align-items: center; }
        .head h2 { font-size: 19px; line-height: 1.3; overflow-wrap: anywhere; }
        .head p { font-size: 14px; color: var(--quiet); line-height: 1.4; }
        .ring { flex: none; width: 76px; height: 76px; }
        .ring circle { fill: none; stroke-width: 8; stroke: var(--track); }
        .ring .arc { stroke: var(--accent); transform: rotate(-90deg); transform-origin: 50% 50%;
          transition: stroke-dasharray .6s ease, stroke .6s; }
        .ring .arc.hot { stroke: var(--warn); } .ring .arc.none { stroke: none; }
        .ring text { fill: var(--ink); font-size: 19px; font-weight: 650; text-anchor: middle; dominant-baseline: central; }
        .ring .unit { font-size: 11px; font-weight: 500; fill: var(--quiet); }
        .dot { display: inline-block; width: 8px; height: 8px; border-radius: 50%; margin-right: 6px;
          background: var(--quiet); opacity: .6; }
        .dot.awake { background: var(--good); opacity: 1; } .dot.ended { background: var(--bad); opacity: 1; }
        .chart { margin: 14px 0 12px; }
        .chart .row { justify-content: space-between; margin-bottom: 4px; }
        .chart .peak { font-size: 13px; color: var(--quiet); white-space: nowrap; }
        .chart .line { height: 46px; border-bottom: 1px solid var(--rule); }
        .now { display: grid; grid-template-columns: repeat(3, 1fr); gap: 10px 12px; }
        .now div { min-width: 0; } .now dt { font-size: 12px; color: var(--quiet); line-height: 1.3; }
        .now dd { font-size: 18px; font-weight: 600; line-height: 1.3; }
        details { margin-top: 12px; border-top: 1px solid var(--rule); padding-top: 10px; }
        details + details { margin-top: 8px; padding-top: 8px; }
        summary { cursor: pointer; font-size: 14px; color: var(--quiet); }
        summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 4px; }
        .since { display: grid; grid-template-columns: 1fr auto; gap: 2px 12px; margin-top: 8px; font-size: 14px; }
        .since dt { color: var(--quiet); } .since dd { text-align: right; overflow-wrap: anywhere; }
        .items { margin-top: 8px; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow-wrap: anywhere;
          max-height: 300px; overflow: auto; }
        .items div { padding: 2px 0 2px 14px; text-indent: -14px; } .items .mode { font-weight: 700; }
        .slowest { margin-top: 8px; font-size: 13px; overflow-wrap: anywhere; }
        .slowest div { display: grid; grid-template-columns: 5.5em 1fr; gap: 8px; padding: 2px 0; } .slowest span { color: var(--quiet); }
        #stalls h2 { font-size: 17px; margin: 28px 0 8px; }
        .stall { background: var(--card); border: 1px solid var(--rule); border-left: 4px solid var(--bad); border-radius: 10px;
          padding: 12px 16px; margin-bottom: 10px; } .stall h3 { font-size: 15px; overflow-wrap: anywhere; }
        .stall p { font-size: 14px; color: var(--quiet); overflow-wrap: anywhere; }
        .stall pre { margin: 8px 0 0; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow: auto; max-height: 320px; }
        .stall.warning { border-left-color: var(--warn); }
        .look { margin: 20px 0 0; font-size: 14px; } a { color: var(--accent); }
        .guide { margin-top: 36px; max-width: 78ch; } .guide h2 { font-size: 17px; margin-bottom: 8px; }
        .guide dl { display: grid; grid-template-columns: 6.5em 1fr; gap: 8px 16px; font-size: 14px; }
        .guide dt { font-weight: 600; } .guide dd { color: var(--quiet); text-wrap: pretty; }
        @media (max-width: 860px) { .totals { grid-template-columns: repeat(3, 1fr); } .wide { grid-column: 1 / -1; } }
        @media (max-width: 560px) { main { padding: 20px 14px 36px; } .lede { font-size: 16px; margin: 14px 0 18px; }
          .totals, #loops { gap: 10px; }
          .tile { padding: 12px; } .tile b { font-size: 22px; } .tile h2 { font-size: 12px; line-height: 1.3; }
          .totals .tile:not(.wide) { display: flex; flex-direction: column; justify-content: space-between; }
          .guide dl { grid-template-columns: 1fr; gap: 2px; } .guide dd { margin-bottom: 8px; } }
        @media (prefers-reduced-motion: reduce) { .ring .arc { transition: none; } }
        """
}
