# SPDX-License-Identifier: MIT
# Defines ignis::ignis: the folder of the headers, and the system's libraries that the file with IGNIS_IMPLEMENTATION needs.
# CMakeLists.txt includes this file too, and says where the headers are.
if(NOT TARGET ignis::ignis)
    if(NOT DEFINED ignis_headers)
        get_filename_component(ignis_headers "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
    endif()
    add_library(ignis::ignis INTERFACE IMPORTED GLOBAL)
    target_include_directories(ignis::ignis INTERFACE "${ignis_headers}")
    if(UNIX)
        target_link_libraries(ignis::ignis INTERFACE m ${CMAKE_DL_LIBS} pthread)
    endif()
    unset(ignis_headers)
endif()
