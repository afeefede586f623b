# SPDX-License-Identifier: Apache-2.0
# tck_library(<NAME> <package> <header> <library>): PkgConfig::<NAME>, a library that everything needs. Without
# pkg-config, or if that does not know it, header and library are looked for below CMAKE_PREFIX_PATH too.
function(tck_library name package header library)
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(${name} IMPORTED_TARGET ${package})
    endif()
    if(NOT ${name}_FOUND)
        find_path(${name}_HEADERS ${header} REQUIRED)
        find_library(${name}_FILE ${library} REQUIRED)
        add_library(PkgConfig::${name} INTERFACE IMPORTED)
        target_include_directories(PkgConfig::${name} INTERFACE ${${name}_HEADERS})
        target_link_libraries(PkgConfig::${name} INTERFACE ${${name}_FILE})
    endif()
endfunction()
