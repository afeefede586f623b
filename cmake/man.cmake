# SPDX-License-Identifier: Apache-2.0
# tck_man_page(<target> <section> <what it is>): the manual page of a program, made of what it says to --help. Without
# help2man, and where programs of the build do not run here, there are none.
find_program(TCK_HELP2MAN help2man)
mark_as_advanced(TCK_HELP2MAN)
if(NOT TCK_HELP2MAN)
    message(STATUS "The manual pages are not built: help2man is not installed")
endif()

function(tck_man_page target section about)
    if(NOT TCK_HELP2MAN OR CMAKE_CROSSCOMPILING OR TCK_SANITIZE)
        return()
    endif()
    get_target_property(name ${target} OUTPUT_NAME)
    if(NOT name)
        set(name ${target})
    endif()
    set(page ${PROJECT_BINARY_DIR}/man/${name}.${section})
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
    add_custom_command(OUTPUT ${page}
        COMMAND ${TCK_HELP2MAN} --no-info --section=${section} --name=${about}
            --include=${PROJECT_SOURCE_DIR}/cmake/see_also.h2m --output=${page} $<TARGET_FILE:${target}>
        DEPENDS ${target} ${PROJECT_SOURCE_DIR}/cmake/see_also.h2m VERBATIM)
    add_custom_target(man_${name} ALL DEPENDS ${page})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()
