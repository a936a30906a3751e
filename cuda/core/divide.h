// SPDX-License-Identifier: Apache-2.0
// Divider: installed, because a user's own elementwise kernels divide as well.
#pragma once

#include "flowk/divide.h"
