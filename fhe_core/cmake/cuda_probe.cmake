# find_card(reason): empty when this machine shows an NVIDIA card, else what is missing. Kernels take minutes to compile, so AUTO compiles them
# only for a machine that can run them. The paths are those of Linux, of WSL and of Tegra.
set(CLOAKWORK_CARD_PATHS "/proc/driver/nvidia/gpus/*" "/dev/nvidia[0-9]*" /dev/dxg /dev/nvhost-gpu
    CACHE STRING "Paths of which one exists where there is a card")
mark_as_advanced(CLOAKWORK_CARD_PATHS)

function(find_card reason)
  file(GLOB cards LIST_DIRECTORIES true ${CLOAKWORK_CARD_PATHS})
  set(${reason} "" PARENT_SCOPE)
  if(NOT cards)
    set(${reason} "no NVIDIA card is visible on this machine" PARENT_SCOPE)
  endif()
endfunction()

# probe_cuda(reason): empty when this machine builds CUDA C++20 for CMAKE_CUDA_ARCHITECTURES, else one line that says why not.
#
# CMake ends a configuration whose compiler does not work (enable_language), which must not happen where CUDA is only welcome: the
# compiler is missing, broken, too old, or does not take the host compiler or its C++20. So a small project is configured and built
# by another cmake with the same settings.

set(CLOAKWORK_CUDA_SETTINGS
    CMAKE_MAKE_PROGRAM CMAKE_TOOLCHAIN_FILE CMAKE_CXX_COMPILER CMAKE_CUDA_COMPILER CMAKE_CUDA_HOST_COMPILER CMAKE_CUDA_ARCHITECTURES
    CMAKE_CUDA_FLAGS CMAKE_PREFIX_PATH CMAKE_IGNORE_PATH CUDAToolkit_ROOT)

# The line of a failed configuration or build that names the cause.
function(cuda_failure_line output result)
  string(REPLACE ";" "," output "${output}")
  string(REGEX REPLACE "\r?\n" ";" lines "${output}")
  set(found "")
  foreach(pattern "fatal *: " "[Cc]ould( not|n't) find|could be found" "[Ee]rror *: " "#error" "requires the language dialect" "[Ee]rror" "[^ ]")
    foreach(line IN LISTS lines)
      if(found STREQUAL "" AND line MATCHES "${pattern}" AND NOT line MATCHES "^--|^CMake Error at|^\\[")
        set(found "${line}")
      endif()
    endforeach()
  endforeach()
  if(found STREQUAL "")
    set(found "the CUDA compiler does not work")
  endif()
  string(REGEX REPLACE "[^A-Za-z0-9 .,:_/'()+!*=-]" "" found "${found}")  # it becomes a string of the extension module
  string(REGEX REPLACE "  +" " " found "${found}")
  string(STRIP "${found}" found)
  string(SUBSTRING "${found}" 0 200 found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Why a configuration or build in `folder` that printed `output` failed.
function(cuda_failure folder output reason)
  set(compiler "")
  if(EXISTS ${folder}/CMakeCache.txt)
    file(STRINGS ${folder}/CMakeCache.txt compiler REGEX "^CMAKE_CUDA_COMPILER:")
    string(REGEX REPLACE "^[^=]*=" "" compiler "${compiler}")
  endif()
  if(compiler STREQUAL "" OR compiler MATCHES "NOTFOUND$")
    if(output MATCHES "No CMAKE_CUDA_COMPILER could be found")
      set(${reason} "no CUDA compiler was found (nvcc of CUDA 12.4 or newer, in PATH or named by CUDACXX)" PARENT_SCOPE)
      return()
    endif()
  else()
    execute_process(COMMAND ${compiler} --version RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 60)
    if(NOT status STREQUAL "0")
      cuda_failure_line("${said}" line)
      set(${reason} "${compiler} does not run: ${line}" PARENT_SCOPE)
      return()
    endif()
    set(compiler "${compiler}: ")
  endif()
  cuda_failure_line("${output}" line)
  set(${reason} "${compiler}${line}" PARENT_SCOPE)
endfunction()

function(probe_cuda reason)
  set(settings "")
  foreach(name IN LISTS CLOAKWORK_CUDA_SETTINGS)
    if(DEFINED ${name} AND NOT "${${name}}" STREQUAL "")
      string(APPEND settings "set(${name} [==[${${name}}]==] CACHE STRING \"\")\n")
    endif()
  endforeach()
  string(SHA256 digest "${settings} $ENV{CUDACXX} $ENV{CUDAHOSTCXX} $ENV{PATH}")
  if(CLOAKWORK_CUDA_WORKS STREQUAL digest)  # configured again with the same settings
    set(${reason} "" PARENT_SCOPE)
    return()
  endif()

  set(folder ${CMAKE_CURRENT_BINARY_DIR}/cuda_probe)
  file(REMOVE_RECURSE ${folder})
  file(WRITE ${folder}/settings.cmake "${settings}")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -C ${folder}/settings.cmake -S ${CMAKE_CURRENT_SOURCE_DIR}/cmake/cuda_probe -B ${folder} -G ${CMAKE_GENERATOR}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 300)
  if(status STREQUAL "0")
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${folder} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 300)
  endif()
  if(NOT status STREQUAL "0")
    cuda_failure(${folder} "${output}" failure)
    set(${reason} "${failure}" PARENT_SCOPE)
    return()
  endif()
  set(CLOAKWORK_CUDA_WORKS ${digest} CACHE INTERNAL "settings that the probe passed with")
  set(${reason} "" PARENT_SCOPE)
endfunction()
