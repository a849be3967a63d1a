#ifndef QWEN35_TEST_UNIT_BUNDLE_TINY_KERNELS_H
#define QWEN35_TEST_UNIT_BUNDLE_TINY_KERNELS_H

/* Sizes that the kernels and the plan of the tiny bundle agree on. */
enum { kTokens = 48, kChunk = 8, kWords = 256, kBlock = 16 };

#endif /* QWEN35_TEST_UNIT_BUNDLE_TINY_KERNELS_H */
