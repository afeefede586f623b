# SPDX-License-Identifier: Apache-2.0
# Storage at s3:// needs libcurl (7.85 or newer) and expat. TCK_S3_BUILT says whether it is built.
set(TCK_S3_BUILT FALSE)
if(NOT TCK_S3 STREQUAL "OFF")
    find_package(CURL 7.85 QUIET)
    find_package(EXPAT QUIET)
    if(CURL_FOUND AND EXPAT_FOUND)
        set(TCK_S3_BUILT TRUE)
    elseif(TCK_S3 STREQUAL "ON")
        message(FATAL_ERROR " TCK_S3 needs Debian packages that are not installed: apt-get install libcurl4-openssl-dev libexpat1-dev")
    else()
        message(STATUS "s3:// is not built: there is no libcurl (7.85 or newer) or no expat")
    endif()
endif()
