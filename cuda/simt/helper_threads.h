// SPDX-License-Identifier: Apache-2.0
// Host threads that help a launch. They are started by the first call, sleep between launches and never end. They block
// all signals, and have the default floating-point environment. A process made by fork() starts its own.
#pragma once

namespace flowk::simt {

// Lets up to `count` helpers call work(context), `count` times in all. Returns whether they were called: they serve one
// launch at a time, and there may be no memory for a thread. If true, dismiss_helpers() must follow.
bool call_helpers(int count, void (*work)(void*), void* context);
// No helper begins after this; returns when those that have begun are done.
void dismiss_helpers();

}  // namespace flowk::simt
