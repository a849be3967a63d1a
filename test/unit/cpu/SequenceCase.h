#ifndef QWEN35_TEST_UNIT_CPU_SEQUENCECASE_H
#define QWEN35_TEST_UNIT_CPU_SEQUENCECASE_H

#include "test/unit/cpu/KernelTest.h"
#include "test/unit/support/SequenceCase.h"

#endif // QWEN35_TEST_UNIT_CPU_SEQUENCECASE_H
