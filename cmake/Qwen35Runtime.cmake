# What the runtime is built from: Abseil, Protobuf (lite) and the standard library, all static. No MLIR, no LLVM.
include_guard(GLOBAL)

# Debian's Abseil targets name the shared objects; the runtime ships as one file, so take the archives beside them.
function(_qwen35_prefer_static_absl)
  get_directory_property(targets IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    if(NOT target MATCHES "^absl::")
      continue()
    endif()
    get_target_property(kind ${target} TYPE)
    if(kind STREQUAL "INTERFACE_LIBRARY")
      continue()
    endif()
    foreach(config NONE RELEASE DEBUG RELWITHDEBINFO MINSIZEREL)
      get_target_property(path ${target} IMPORTED_LOCATION_${config})
      if(path)
        string(REGEX REPLACE "\\.so(\\..*)?$" ".a" archive "${path}")
        if(EXISTS "${archive}")
          set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${config} "${archive}")
        endif()
      endif()
    endforeach()
  endforeach()
endfunction()
_qwen35_prefer_static_absl()

add_library(qwen35_protobuf INTERFACE)
find_library(QWEN35_PROTOBUF_LITE NAMES libprotobuf-lite.a REQUIRED)
target_include_directories(qwen35_protobuf SYSTEM INTERFACE ${Protobuf_INCLUDE_DIRS})
target_link_libraries(qwen35_protobuf INTERFACE ${QWEN35_PROTOBUF_LITE} Threads::Threads)

add_library(qwen35_sodium INTERFACE) # SHA-256
find_library(QWEN35_SODIUM NAMES libsodium.a REQUIRED)
target_link_libraries(qwen35_sodium INTERFACE ${QWEN35_SODIUM})

# qwen35_runtime_library(NAME SOURCES ... LINK ...): a static library of runtime/.
function(qwen35_runtime_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC ${A_LINK} Threads::Threads)
endfunction()

# qwen35_runtime_tool(NAME SOURCES ... LINK ...): an executable that needs no library beyond libc and libm.
function(qwen35_runtime_tool name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${A_LINK} Threads::Threads)
  target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
endfunction()
