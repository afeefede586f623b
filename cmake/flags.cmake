# SPDX-License-Identifier: Apache-2.0
# One place for language, warnings, hardening and sanitizers.
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

add_compile_definitions(_GNU_SOURCE)
set(warnings
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wimplicit-fallthrough -Wswitch-enum
    -Wdouble-promotion -fno-common -fno-strict-aliasing -fstack-protector-strong -fno-omit-frame-pointer)
if(TCK_WERROR)
    list(APPEND warnings -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${warnings}>") # nvcc has names of its own
if(TCK_SANITIZE)
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:-fsanitize=${TCK_SANITIZE};-fno-sanitize-recover=all>")
    add_link_options(-fsanitize=${TCK_SANITIZE})
    if(TCK_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # It warns of fences, which it does not follow. Ours order writes that only other processes read.
        add_compile_options($<$<COMPILE_LANGUAGE:C>:-Wno-tsan>)
    endif()
else()
    add_compile_definitions($<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
    add_link_options(-Wl,-z,relro,-z,now)
endif()
if(TCK_FAILPOINTS)
    add_compile_definitions(TCK_FAILPOINTS)
endif()
if(TCK_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Include roots: "tierckpt.h", "base/x.h", "core/x.h", "tiers/x.h", "recovery/x.h".
add_library(tck_includes INTERFACE)
target_include_directories(tck_includes INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/runtime ${PROJECT_SOURCE_DIR})
