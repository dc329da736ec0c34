# Foreign libraries, all from Debian 12 packages, each as one imported target.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl>=7.85)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
# nng is linked as an archive, so that its calls from one part to another can be led through proto/mend.c.
find_path(NNG_INCLUDE_DIR nng/nng.h REQUIRED)
find_library(NNG_LIBRARY libnng.a REQUIRED)
# Debian 12's mbedTLS has neither a CMake nor a pkg-config file.
find_path(MBEDTLS_INCLUDE_DIR mbedtls/x509_crt.h REQUIRED)
find_library(MBEDTLS_LIBRARY mbedtls REQUIRED)
find_library(MBEDX509_LIBRARY mbedx509 REQUIRED)
find_library(MBEDCRYPTO_LIBRARY mbedcrypto REQUIRED)
add_library(mbedtls::x509 INTERFACE IMPORTED)
target_include_directories(mbedtls::x509 INTERFACE ${MBEDTLS_INCLUDE_DIR})
target_link_libraries(mbedtls::x509 INTERFACE ${MBEDX509_LIBRARY} ${MBEDCRYPTO_LIBRARY})
add_library(nng::nng INTERFACE IMPORTED)
target_include_directories(nng::nng INTERFACE ${NNG_INCLUDE_DIR})
target_compile_definitions(nng::nng INTERFACE NNG_STATIC_LIB)
target_link_libraries(nng::nng INTERFACE ${NNG_LIBRARY} ${MBEDTLS_LIBRARY} mbedtls::x509 Threads::Threads)
target_link_options(nng::nng INTERFACE
    -Wl,--wrap=nni_aio_begin -Wl,--wrap=nng_stream_recv -Wl,--wrap=nng_stream_send
    -Wl,--wrap=nng_dialer_start -Wl,--wrap=nni_aio_result -Wl,--wrap=nng_aio_result -Wl,--wrap=nni_sleep_aio -Wl,--wrap=nni_pipe_send
    -Wl,--undefined=__wrap_nni_aio_begin)
find_program(PROTOC_C protoc-c REQUIRED)
