# omm_embed(HEADER FILES...) writes HEADER with the bytes of each file: page/status.html becomes
# `static const uint8_t s_status_html[]`.  Made anew when one of them changes.
function(omm_embed HEADER)
    set(TEXT "/* Made by the build from the files named below. */\n#include <stdint.h>\n")
    foreach(FILE IN LISTS ARGN)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${FILE})
        get_filename_component(NAME ${FILE} NAME)
        string(MAKE_C_IDENTIFIER ${NAME} NAME)
        file(READ ${FILE} BYTES HEX)
        string(REGEX REPLACE "(..)" "0x\\1," BYTES "${BYTES}")
        string(APPEND TEXT "static const uint8_t s_${NAME}[] = { /* ${FILE} */\n${BYTES}};\n")
    endforeach()
    file(CONFIGURE OUTPUT ${HEADER} CONTENT "${TEXT}" @ONLY)
endfunction()
