# chosen_instruction_sets(result): what src/cpu/kernels.cpp is compiled for, and with which flags. CLOAKWORK_KERNELS=native is for who
# builds for this machine alone and wants it soon (`make demo`): a third of the kernels, the ones that dispatch.cpp would choose here.

set(baseline_FLAGS "")
set(avx2_FLAGS -mavx2 -mbmi2 -mfma)
set(avx512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mbmi2 -mprefer-vector-width=512)

# The processor features of dispatch.cpp.
set(avx2_FEATURES avx2 bmi2 fma)
set(avx512_FEATURES avx512f avx512bw avx512dq avx512vl bmi2)

function(runs_here isa result)
  set(condition 1)
  foreach(feature IN LISTS ${isa}_FEATURES)
    string(APPEND condition " && __builtin_cpu_supports(\"${feature}\")")
  endforeach()
  include(CheckCXXSourceRuns)
  set(CMAKE_REQUIRED_QUIET TRUE)
  check_cxx_source_runs("int main() { __builtin_cpu_init(); return ${condition} ? 0 : 1; }" CLOAKWORK_RUNS_${isa})
  set(${result} ${CLOAKWORK_RUNS_${isa}} PARENT_SCOPE)
endfunction()

function(chosen_instruction_sets result)
  set(${result} baseline PARENT_SCOPE)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    return()
  endif()
  if(CLOAKWORK_KERNELS STREQUAL "native" AND NOT CMAKE_CROSSCOMPILING)
    foreach(isa avx512 avx2)
      runs_here(${isa} runs)
      if(runs)
        set(${result} ${isa} PARENT_SCOPE)
        return()
      endif()
    endforeach()
    return()
  endif()
  set(${result} baseline avx2 avx512 PARENT_SCOPE)
endfunction()
