include_guard(GLOBAL)
include(GoogleTest)

# qwen35_unit_test(NAME SOURCES ... LINK ...): one GoogleTest binary, one ctest entry per case, label "unit".
function(qwen35_unit_test name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${A_LINK} GTest::gtest GTest::gtest_main Threads::Threads)
  target_compile_definitions(${name} PRIVATE
    QWEN35_SOURCE_DIR="${PROJECT_SOURCE_DIR}" QWEN35_BINARY_DIR="${PROJECT_BINARY_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX unit. PROPERTIES LABELS unit DISCOVERY_TIMEOUT 60)
endfunction()

# Adds every direct subfolder that has a CMakeLists.txt, in name order.
function(qwen35_add_subdirectories)
  file(GLOB lists CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */CMakeLists.txt)
  foreach(list IN LISTS lists)
    get_filename_component(folder ${list} DIRECTORY)
    add_subdirectory(${folder})
  endforeach()
endfunction()
