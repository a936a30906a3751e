/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen: the program is not linked to flowk, and runs without it. The argument is the library's file.
 * Build: cc loaded_at_run_time.c $(python -m pyflowk --cflags) -ldl */
#include <dlfcn.h>
#include <flowk/flowk.h>
#include <stdio.h>
#include <string.h>

/* The function of the library, with the type that flowk.h declares. */
#define LOAD(library, function)                                       \
  do {                                                                \
    void *const symbol = dlsym(library, "flowk_" #function);          \
    if (symbol == NULL) return fprintf(stderr, "%s\n", dlerror()), 1; \
    memcpy(&function, &symbol, sizeof symbol);                        \
  } while (0)

int main(int argc, char **argv) {
  __typeof__(&flowk_version) version;
  __typeof__(&flowk_unary) unary;
  float x[3] = {-1.0f, 0.5f, 2.0f};
  const int64_t shape[] = {3};
  void *library;
  if (argc != 2) return fprintf(stderr, "usage: %s libflowk_simt.so.1\n", argv[0]), 1;
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  LOAD(library, version);
  LOAD(library, unary);
  if (version() / 100 != FLOWK_VERSION / 100) return fprintf(stderr, "the library has another version\n"), 1;
  if (unary(FLOWK_UNARY_RELU, x, NULL, FLOWK_FLOAT32, x, NULL, FLOWK_FLOAT32, 1, shape, 0, 0, NULL) != 0) return 1;
  printf("%g %g %g\n", x[0], x[1], x[2]);
  return x[0] == 0.0f && x[2] == 2.0f ? 0 : 1;
}
