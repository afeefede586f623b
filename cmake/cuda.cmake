# SPDX-License-Identifier: Apache-2.0
# Sets TCK_CUDA_BUILT: whether the CUDA module is built.
set(TCK_CUDA_BUILT OFF)
if(NOT TCK_CUDA STREQUAL "OFF")
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(TCK_CUDA_BUILT ON)
    elseif(NOT TCK_CUDA STREQUAL "AUTO")
        message(FATAL_ERROR "TCK_CUDA is ${TCK_CUDA}, and there is no nvcc")
    endif()
endif()
