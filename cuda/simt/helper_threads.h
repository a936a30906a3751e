// SPDX-License-Identifier: Apache-2.0
// Host threads that help a launch: started when first called, asleep between launches, never ended. They block all
// signals, and work with the rounding mode and the other floating-point settings of the thread that calls them. A
// process made by fork() starts its own.
#pragma once

namespace flowk::simt {

// Lets up to `count` helpers call work(context), `count` times in all. Returns whether they were called: they serve one
// launch at a time, and there may be no memory for a thread. If true, dismiss_helpers() must follow.
bool call_helpers(int count, void (*work)(void*), void* context);
// No helper begins after this; returns when those that have begun are done.
void dismiss_helpers();

}  // namespace flowk::simt
