// SPDX-License-Identifier: Apache-2.0
// A plan's mechanism is a std::variant, and an enum of the same order names its alternatives.
#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

#include "core/namespaces.h"

namespace flowk::core {

// Whether `Mechanism` is the alternative of `Variant` that the enumerator `kernel` names.
template <auto kernel, class Mechanism, class Variant>
constexpr bool names_mechanism =
    std::is_same_v<std::variant_alternative_t<static_cast<std::size_t>(kernel), Variant>, Mechanism>;

}  // namespace flowk::core
