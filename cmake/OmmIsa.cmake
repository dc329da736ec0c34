# Kernels compiled once per instruction set (plain C twice on x86-64), chosen at run time.
#
# omm_isa_sources(OUT kernels) sets OUT to those of kernels_scalar.c, kernels_scalar_fma.c, kernels_avx2.c,
# kernels_avx2_vnni.c, kernels_avx512.c, kernels_neon.c and kernels_neon_dotprod.c that are there and that this target
# can run, with their compiler flags.
# kernels_scalar.c gets no instruction-set flag: on x86-64 fmaf is libm's there, one call for each.
# kernels_scalar_fma.c is the same C for processors that have the instruction.
#
# With sanitizers only the AVX2 (or NEON) build of the shared body is instrumented: it covers the
# code, and the others would take minutes to compile and run.
#
# OMM_AVX2_VNNI_BY_AVX512: AVX2 with AVX-VNNI is compiled with the same operations as AVX-512 has them, so that tests run
# it on a processor that has only those.  A program built so serves that machine alone.
set(CPU_FLAGS "")
if(EXISTS /proc/cpuinfo)
    file(READ /proc/cpuinfo CPU_FLAGS)
endif()
set(BY_AVX512 OFF)
if(OMM_SANITIZE AND CPU_FLAGS MATCHES "avx512_vnni" AND NOT CPU_FLAGS MATCHES "avx_vnni")
    set(BY_AVX512 ON)
endif()
option(OMM_AVX2_VNNI_BY_AVX512 "Run what needs AVX-VNNI on AVX-512" ${BY_AVX512})
set(AVX_VNNI -mavxvnni)
if(OMM_AVX2_VNNI_BY_AVX512)
    set(AVX_VNNI "-mavx512vl;-mavx512vnni;-mprefer-vector-width=256")
    add_compile_definitions(OMM_AVX2_VNNI_BY_AVX512)
endif()
set(OMM_KERNEL_OPTIMIZE -O3 CACHE STRING "How kernels are optimised; their results are the same")
function(omm_isa_sources OUT STEM)
    set(PLAIN ${OMM_KERNEL_OPTIMIZE})
    set(CHECKED ${OMM_KERNEL_OPTIMIZE})
    if(OMM_SANITIZE)
        set(PLAIN -O2 -fno-sanitize=all -g1) # where variables of unrolled loops are would take half of the compiler's time
        set(CHECKED -O1 -g1)
        # Checks of memory as calls: inline, thousands of unrolled loads take minutes to compile.
        if(OMM_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL GNU)
            list(APPEND CHECKED --param=asan-instrumentation-with-call-threshold=0)
        elseif(OMM_SANITIZE MATCHES address)
            list(APPEND CHECKED -mllvm -asan-instrumentation-with-call-threshold=0)
        endif()
        if(OMM_FUZZ) # what is read is fuzzed; of the kernels memory alone is watched
            list(APPEND CHECKED -fno-sanitize=undefined,fuzzer,fuzzer-no-link)
        endif()
    endif()
    set(SOURCES ${STEM}_scalar.c)
    set_source_files_properties(${STEM}_scalar.c PROPERTIES COMPILE_OPTIONS "${PLAIN}")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        list(APPEND SOURCES ${STEM}_scalar_fma.c ${STEM}_avx2.c ${STEM}_avx512.c)
        # It waits for the C library, whatever the compiler does (11.3 and 11.7 s of same_bytes_no_fma in -O2 and -O1).
        set_property(SOURCE ${STEM}_scalar.c APPEND PROPERTY COMPILE_OPTIONS -O1)
        set_source_files_properties(${STEM}_scalar_fma.c PROPERTIES COMPILE_OPTIONS "${PLAIN};-mfma")
        set_source_files_properties(${STEM}_avx2.c PROPERTIES
            COMPILE_OPTIONS "${CHECKED};-mavx2;-mfma;-mf16c")
        # With sanitizers -O1 like the AVX2 kernels and all around them: the runs of gcc without most optimisations.
        set(WIDE ${PLAIN})
        if(OMM_SANITIZE)
            list(APPEND WIDE -O1)
        endif()
        set_source_files_properties(${STEM}_avx512.c PROPERTIES COMPILE_OPTIONS
            "${WIDE};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mfma;-mf16c;-mprefer-vector-width=512")
        if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${STEM}_avx2_vnni.c)
            list(APPEND SOURCES ${STEM}_avx2_vnni.c)
            set_source_files_properties(${STEM}_avx2_vnni.c PROPERTIES COMPILE_OPTIONS "${PLAIN};-mavx2;-mfma;-mf16c;${AVX_VNNI}")
        endif()
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
        list(APPEND SOURCES ${STEM}_neon.c)
        set_source_files_properties(${STEM}_neon.c PROPERTIES COMPILE_OPTIONS "${CHECKED}")
        if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${STEM}_neon_dotprod.c)
            list(APPEND SOURCES ${STEM}_neon_dotprod.c)
            set_source_files_properties(${STEM}_neon_dotprod.c PROPERTIES
                COMPILE_OPTIONS "${PLAIN};-march=armv8.2-a+dotprod")
        endif()
    endif()
    set(${OUT} ${SOURCES} PARENT_SCOPE)
endfunction()
