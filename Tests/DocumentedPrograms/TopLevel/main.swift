// The waits of docs/threads.md in top-level code, where they suspend in a task. ProgramTests run it.

import EventLoop

let thread = try RunLoopThread(name: "worker")
let port = RunLoop.Port(capacity: 1) { _, _ in }
thread.runLoop.add(port)
try await Task { try await port.send(RunLoop.PortMessage(id: 1), before: .now + .seconds(10)) }.value
print("sent")
thread.stop()
print("joined: \(await Task { await thread.join(timeout: .seconds(10)) }.value)")

let group = try RunLoopThreadGroup(count: 2)
_ = await Task { await group.shutdown() }.value
print("the group has ended")
