// The first program of docs/getting-started.md. ProgramTests run it.

import EventLoop

RunLoop.Timer.scheduled(every: .seconds(1)) { _ in print("tick") }
print(RunLoop.main.run(for: .milliseconds(3_500)))
