# nng, linked as an archive, so that its calls from one part to another can be led through proto/mend.c.
# An archive that has other inner calls is refused here, by name, rather than by the linker.
set(NNG_LED nni_aio_begin nni_aio_schedule nni_aio_result nng_aio_result nni_sleep_aio nni_task_abort nni_pipe_send
    nng_stream_recv nng_stream_send nng_dialer_start)

function(omm_nng_refused WHY)
    message(FATAL_ERROR "nng: ${WHY}\n"
        "proto/mend.c leads inner calls of nng, for which it needs the archive libnng.a of an nng that has them; known to work: 1.5.2 "
        "and 1.10.1.  Debian's libnng-dev has it.  Elsewhere build nng 1.10.1 with -DBUILD_SHARED_LIBS=OFF -DNNG_ENABLE_TLS=ON, and name "
        "the folder where it was installed in CMAKE_PREFIX_PATH.")
endfunction()

# Which inner calls the archive lacks, as a program finds that calls them all.
function(omm_nng_check)
    set(CALLS "")
    foreach(NAME IN LISTS NNG_LED ITEMS nni_aio_finish_error)
        string(APPEND DECLARED "void ${NAME}(void);\n")
        string(APPEND CALLS "${NAME}();\n")
    endforeach()
    try_compile(LINKS SOURCE_FROM_CONTENT nng_led.c "${DECLARED}int main(void) { ${CALLS} return 0; }\n" NO_CACHE
        LINK_LIBRARIES ${NNG_LIBRARY} ${MBEDTLS_LIBRARY} mbedtls::x509 Threads::Threads OUTPUT_VARIABLE OUTPUT)
    if(LINKS)
        return()
    endif()
    set(MISSING "")
    foreach(NAME IN LISTS NNG_LED ITEMS nni_aio_finish_error)
        if(OUTPUT MATCHES "undefined[^\n]*[^a-z_]${NAME}[^a-z_]")
            list(APPEND MISSING ${NAME})
        endif()
    endforeach()
    list(JOIN MISSING ", " MISSING)
    if(MISSING)
        omm_nng_refused("${NNG_LIBRARY} has no ${MISSING}")
    endif()
    omm_nng_refused("a program cannot be linked with ${NNG_LIBRARY}:\n${OUTPUT}")
endfunction()

find_path(NNG_INCLUDE_DIR nng/nng.h)
find_library(NNG_LIBRARY libnng.a)
if(NOT NNG_INCLUDE_DIR OR NOT NNG_LIBRARY)
    omm_nng_refused("no libnng.a with its header nng/nng.h was found")
endif()
omm_nng_check()

list(TRANSFORM NNG_LED PREPEND -Wl,--wrap= OUTPUT_VARIABLE NNG_WRAPS)
add_library(nng::nng INTERFACE IMPORTED)
target_include_directories(nng::nng INTERFACE ${NNG_INCLUDE_DIR})
target_compile_definitions(nng::nng INTERFACE NNG_STATIC_LIB)
target_link_libraries(nng::nng INTERFACE ${NNG_LIBRARY} ${MBEDTLS_LIBRARY} mbedtls::x509 Threads::Threads)
target_link_options(nng::nng INTERFACE ${NNG_WRAPS} -Wl,--undefined=__wrap_nni_aio_begin)
