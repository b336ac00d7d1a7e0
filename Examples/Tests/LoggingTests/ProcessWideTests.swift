// Tests that set a handler of the whole process run one after the other: their suites are in this one.

import Testing

@Suite(.serialized) struct ProcessWideTests {}
