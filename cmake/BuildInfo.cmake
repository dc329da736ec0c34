# Run at every build: writes OUT (build_info.h) with the commit of SOURCE, only when it changed.
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE COMMIT
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE DIRTY
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT COMMIT)
    set(COMMIT unknown)
elseif(DIRTY)
    string(APPEND COMMIT "-modified")
endif()
set(TEXT "/* Written by the build. */
#ifndef OMM_BUILD_INFO_H
#define OMM_BUILD_INFO_H

#define OMM_BUILD_COMMIT \"${COMMIT}\"
#define OMM_BUILD_TEXT \"${BUILD_TEXT}\"
#define OMM_BUILD_VERSION \"${VERSION}\"

#endif
")
if(EXISTS ${OUT})
    file(READ ${OUT} OLD)
endif()
if(NOT "${OLD}" STREQUAL "${TEXT}")
    file(WRITE ${OUT} "${TEXT}")
endif()
