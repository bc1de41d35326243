// parameter_set_names(), paper_set_names(), parameter_set(name) and the read-only ParameterSet.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "bindings/bindings.hpp"
#include "core/errors.hpp"
#include "core/tables/paper.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

const char* secret_name(SecretKind kind) {
    switch (kind) {
        case SecretKind::binary: return "binary";
        case SecretKind::ternary: return "ternary";
        case SecretKind::quinary: return "quinary";
        case SecretKind::gaussian: return "gaussian";
    }
    return "";
}

const char* kind_name(TableKind kind) {
    switch (kind) {
        case TableKind::gate: return "gate";
        case TableKind::exact: return "exact";
        default: return "approximate";
    }
}

py::tuple gadget_tuple(const Gadget& gadget) { return py::make_tuple(gadget.base_log, gadget.level_count); }

const ParameterSet& find_parameter_set(const std::string& name) {
    for (const ParameterSet& params : kAllSets)
        if (params.name == name) return params;
    std::string known;
    for (const ParameterSet& params : kParameterSets) known += (known.empty() ? "" : ", ") + std::string(params.name);
    throw ParameterError("parameter set: expected one of " + known + "; got '" + name + "'");
}

}  // namespace

void bind_parameters(py::module_& m) {
    using P = ParameterSet;
    py::class_<P>(m, "ParameterSet",
                  "A shipped parameter set; read-only, compared by name. fhe_core/_engine.pyi says what each property is.")
        .def_property_readonly("name", [](const P& p) { return std::string(p.name); })
        .def_property_readonly("kind", [](const P& p) { return kind_name(p.kind); })
        .def_readonly("message_bits", &P::message_bits)
        .def_property_readonly("polynomial_size", &P::polynomial_size)
        .def_property_readonly("glwe_dimension", &P::glwe_dimension)
        .def_property_readonly("lane_count", &P::lane_count)
        .def_property_readonly("component_count", &P::component_count)
        .def_readonly("party_count", &P::party_count)
        .def_property_readonly("party_dimension", &P::party_dimension)
        .def_property_readonly("row_bodies", &P::row_bodies)
        .def_property_readonly("extension_factor", &P::extension_factor)
        .def_property_readonly("table_size", &P::table_size)
        .def_property_readonly("limb_count", &P::limb_count)
        .def_property_readonly("mask_gadget", [](const P& p) { return gadget_tuple(p.shape.mask_gadget); })
        .def_property_readonly("body_gadget", [](const P& p) { return gadget_tuple(p.shape.body_gadget); })
        .def_property_readonly("cmux", [](const P& p) { return std::string(p.rotation().name); })
        .def_property_readonly("glwe_secret", [](const P& p) { return secret_name(p.glwe_secret); })
        .def_property_readonly("lwe_secret", [](const P& p) { return secret_name(p.lwe_secret()); })
        .def_property_readonly("small_key_variance", [](const P& p) { return p.rotation().secret_variance(); })
        .def_property_readonly("structured_secret", &P::has_structured_secret)
        .def_readonly("glwe_sigma", &P::glwe_sigma)
        .def_property_readonly("key_sigma", &P::key_sigma)
        .def_readonly("lwe_dimension", &P::lwe_dimension)
        .def_readonly("keyswitch_modulus_log2", &P::keyswitch_modulus_log2)
        .def_readonly("lwe_sigma", &P::lwe_sigma)
        .def_property_readonly("keyswitch_gadget", [](const P& p) { return gadget_tuple(p.keyswitch_gadget); })
        .def_readonly("max_weight_norm", &P::max_weight_norm)
        .def_readonly("p_fail_log2", &P::p_fail_log2)
        .def_readonly("noise", &P::noise)
        .def_readonly("security_bits", &P::security_bits)
        .def_property_readonly("modulus", &P::modulus)
        .def_property_readonly("raised", &P::is_raised)
        .def_property_readonly("rounded_products", &P::has_rounded_products)
        .def_property_readonly("key_modulus", &P::key_modulus)
        .def_property_readonly("key_limb_count", [](const P& p) { return p.key_limbs().count; })
        .def_property_readonly("large_dimension", &P::large_dimension)
        .def_property_readonly("large_words", &P::large_words)
        .def_property_readonly("small_words", &P::small_words)
        .def_property_readonly("row_count", &P::row_count)
        .def_property_readonly("keys_per_step", &P::keys_per_step)
        .def_property_readonly("step_count", &P::step_count)
        .def_property_readonly("key_step_count", &P::key_step_count)
        .def_property_readonly("accumulator", [](const P& p) { return p.is_ntru() ? "ntru" : "glwe"; })
        .def_property_readonly("accumulator_components", &P::accumulator_components)
        .def_property_readonly("factors_on_products", [](const P& p) { return p.rotation().factors_on_products(); })
        .def_property_readonly("digit_bits", [](const P& p) { return p.rotation().digit_bits; })
        .def_property_readonly("bootstrap_key_body_words", &P::bootstrap_key_body_words)
        .def_property_readonly("keyswitch_key_rows", &P::keyswitch_key_rows)
        .def(
            "__eq__", [](const P& p, const P& other) { return p.name == other.name; }, py::is_operator())
        .def("__hash__", [](const P& p) { return py::hash(py::str(std::string(p.name))); })
        .def("__repr__", [](const P& p) { return "<ParameterSet " + std::string(p.name) + ">"; });

    m.def("parameter_set_names", [] {
        py::list names;
        for (const P& params : kParameterSets) names.append(std::string(params.name));
        return names;
    });
    m.def("paper_set_names", [] {
        py::list names;
        for (const P& params : kPaperSets) names.append(std::string(params.name));
        return names;
    });
    m.def("parameter_set", &find_parameter_set, py::arg("name"), py::return_value_policy::reference,
          "The row of this name, shipped or a paper's.");
}

}  // namespace fhe_core
