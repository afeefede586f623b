# SPDX-License-Identifier: Apache-2.0
# Sets TCK_NCCL_BUILT: whether the NCCL module is built, and TCK_NCCL_INCLUDE: where nccl.h is. It is searched for beside
# the CUDA Toolkit, where Debian has it, and in the Python packages (nvidia-nccl-cu13, -cu12) of the Python found first, or of
# the one that the wheel is built for. While pip builds a wheel its sys.path lacks what is installed beside it.
set(TCK_NCCL_BUILT OFF)

function(tck_find_nccl)
    set(site_dirs)
    find_program(TCK_PYTHON NAMES python3)
    mark_as_advanced(TCK_PYTHON)
    if(SKBUILD AND Python_EXECUTABLE)
        set(TCK_PYTHON ${Python_EXECUTABLE})
    endif()
    if(TCK_PYTHON)
        execute_process(
            COMMAND ${TCK_PYTHON} -c "import sys, sysconfig; print(';'.join(p + '/nvidia/nccl/include' for p in [*sys.path, sysconfig.get_path('purelib')] if p))"
            OUTPUT_VARIABLE site_dirs OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    find_path(TCK_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${site_dirs} DOC "Directory of nccl.h")
endfunction()

if(NOT TCK_NCCL STREQUAL "OFF")
    find_package(CUDAToolkit QUIET) # nccl.h includes its headers
    tck_find_nccl()
    if(CUDAToolkit_FOUND AND TCK_NCCL_INCLUDE)
        set(TCK_NCCL_BUILT ON)
    elseif(NOT TCK_NCCL STREQUAL "AUTO")
        message(FATAL_ERROR "TCK_NCCL is ${TCK_NCCL}, and there is no nccl.h (TCK_NCCL_INCLUDE) or no CUDA Toolkit")
    endif()
endif()
