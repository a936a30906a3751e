// SPDX-License-Identifier: Apache-2.0
// The namespaces and who sees whom: detail <- core <- one namespace per operator, and core <- api. The arrows are those
// of the includes (cuda/meson.build).
#pragma once

namespace flowk {

namespace detail {}  // namespace detail
namespace core {
using namespace detail;
}
namespace permute {
using namespace core;
}
namespace elementwise {
using namespace core;
}
namespace prelu {
using namespace core;
}
namespace softmax {
using namespace core;
}
namespace cross_entropy {
using namespace core;
}
namespace api {
using namespace core;
}
namespace simt {
using namespace core;
}

}  // namespace flowk
