package helm

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"sigs.k8s.io/yaml"
)

// Where the schemas in schemas/ are from: modules whose source holds what a cluster publishes.
var schemaSources = []struct{ module, path string }{
	{"k8s.io/kubernetes@v1.37.1", "api/openapi-spec/swagger.json"},
	{"sigs.k8s.io/gateway-api@v1.5.1", "config/crd/standard/gateway.networking.k8s.io_gateways.yaml"},
	{"sigs.k8s.io/gateway-api@v1.5.1", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
	{"github.com/envoyproxy/gateway@v1.9.1", "charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_backendtrafficpolicies.yaml"},
	{"github.com/prometheus-operator/prometheus-operator@v0.94.0", "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"},
	{"github.com/prometheus-operator/prometheus-operator@v0.94.0", "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
}

// ownKinds are the kinds of Kubernetes itself that the chart and the examples use.
var ownKinds = []string{
	"io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Service", "io.k8s.api.apps.v1.Deployment",
	"io.k8s.api.policy.v1.PodDisruptionBudget", "io.k8s.api.networking.v1.NetworkPolicy", "io.k8s.api.networking.v1.Ingress",
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
}

// conform checks manifests as kubeconform -strict does, with the schemas of this folder.
func conform(t *testing.T, manifests string) []validator.Result {
	t.Helper()
	folder, err := filepath.Abs("schemas")
	if err != nil {
		t.Fatal(err)
	}
	v, err := validator.New([]string{folder + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"}, validator.Opts{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(v.Validate("manifests", io.NopCloser(strings.NewReader(manifests))), func(r validator.Result) bool {
		return r.Status == validator.Empty
	})
}

// go test -update writes the schemas anew; the modules are downloaded for it.
func TestSchemas_Update(t *testing.T) {
	if *update {
		for _, s := range schemaSources {
			writeSchemas(t, s.module, s.path)
		}
	}
	files, err := filepath.Glob("schemas/*.json")
	if err != nil || len(files) != len(ownKinds)+len(schemaSources)-1 {
		t.Errorf("schemas/ has %q (%v)", files, err)
	}
}

func writeSchemas(t *testing.T, module, file string) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = t.TempDir() // outside of any module
	out, err := download.Output()
	var at struct{ Dir string }
	if err != nil || json.Unmarshal(out, &at) != nil {
		t.Fatalf("%s: %v\n%s", module, err, out)
	}
	text, err := os.ReadFile(filepath.Join(at.Dir, file))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(file) == ".json" {
		writeOwn(t, text)
		return
	}
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name    string
				Storage bool
				Schema  struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			schema := strict(version.Schema.OpenAPIV3Schema).(map[string]any)
			schema["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
			writeSchema(t, crd.Spec.Names.Kind, crd.Spec.Group+"/"+version.Name, schema)
		}
	}
}

// writeOwn writes the schemas of Kubernetes' own kinds, each with the definitions that it needs.
func writeOwn(t *testing.T, swagger []byte) {
	t.Helper()
	var all struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal(swagger, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range ownKinds {
		definitions := map[string]any{}
		var need func(any)
		need = func(part any) {
			switch part := part.(type) {
			case map[string]any:
				if ref, ok := part["$ref"].(string); ok {
					name := strings.TrimPrefix(ref, "#/definitions/")
					if definitions[name] == nil {
						definitions[name] = strict(all.Definitions[name])
						need(definitions[name])
					}
				}
				for _, sub := range part {
					need(sub)
				}
			case []any:
				for _, sub := range part {
					need(sub)
				}
			}
		}
		is := all.Definitions[name]["x-kubernetes-group-version-kind"].([]any)[0].(map[string]any)
		version := strings.TrimPrefix(is["group"].(string)+"/"+is["version"].(string), "/")
		schema := strict(all.Definitions[name]).(map[string]any)
		need(schema)
		schema["definitions"] = definitions
		writeSchema(t, is["kind"].(string), version, schema)
	}
}

func writeSchema(t *testing.T, kind, version string, schema map[string]any) {
	t.Helper()
	group, after, _ := strings.Cut(version, "/")
	suffix := "-" + strings.Split(group, ".")[0]
	if after != "" {
		suffix += "-" + after
	}
	schema["required"] = []string{"apiVersion", "kind", "metadata"}
	schema["properties"].(map[string]any)["apiVersion"] = map[string]any{"const": version}
	text, err := json.Marshal(schema)
	if err == nil {
		err = os.WriteFile("schemas/"+strings.ToLower(kind)+suffix+".json", append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// strict is a schema without prose, in which an object has the fields that it names and no other.
func strict(part any) any {
	switch part := part.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range part {
			// A property may be called description: only text is prose.
			if _, isText := value.(string); isText && (name == "description" || name == "title") || strings.HasPrefix(name, "x-kubernetes-") {
				continue
			}
			out[name] = strict(value)
		}
		_, has := out["properties"]
		if _, said := out["additionalProperties"]; has && !said && part["x-kubernetes-preserve-unknown-fields"] != true {
			out["additionalProperties"] = false
		}
		if out["format"] == "int-or-string" || part["x-kubernetes-int-or-string"] == true {
			return map[string]any{"type": []string{"string", "integer"}}
		}
		return out
	case []any:
		out := make([]any, len(part))
		for i, value := range part {
			out[i] = strict(value)
		}
		return out
	}
	return part
}

// The chart with each set of values, the base of kustomize and the examples are what the
// schemas of Kubernetes, of the Gateway API and of Prometheus's operator ask for.
func TestSchemas_EverythingConforms(t *testing.T) {
	manifests := map[string]string{}
	for _, values := range slices.Sorted(maps.Keys(chartValues())) {
		files, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		manifests[values] = joined(files)
	}
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range append(files, "../weir.k8s.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		manifests[file] = string(text)
	}
	for name, text := range manifests {
		results := conform(t, text)
		if len(results) == 0 {
			t.Errorf("%s: nothing is checked", name)
		}
		for _, result := range results {
			if result.Status != validator.Valid {
				t.Errorf("%s: %v", name, result.Err)
			}
		}
	}
}

// What the types of Kubernetes do not see: a value that is not one of those that there are, a
// field that must be there, and a number out of its range.
func TestSchemas_MistakesAreSeen(t *testing.T) {
	text, err := os.ReadFile("../weir.k8s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := os.ReadFile("../examples/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := os.ReadFile("../examples/envoy-gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = slices.Concat(text, []byte("---\n"), gateway, []byte("---\n"), envoy)
	for right, wrong := range map[string]string{
		"readinessProbe:":        "readynessProbe:",
		"replicas: 3":            "replicas: three",
		"apiVersion: apps/v1":    "apiVersion: apps/v1beta9",
		"  selector:\n":          "  selectors:\n",
		"type: PathPrefix":       "type: Prefix",
		"protocol: HTTP}":        "protocol: \"\"}",
		"port: 80, protocol":     "port: 70000, protocol",
		"gatewayClassName":       "gatewayClass",
		"kind: Deployment":       "kind: Deploiment",
		"minAvailable: 2":        "minAvailable: [2]",
		"type: Distinct":         "type: Each",
		"unit: Minute":           "unit: Minutes",
		"containerPort: 8080":    "containerPort: http",
		"metadata:\n  name: api": "meta:\n  name: api",
	} {
		if !bytes.Contains(text, []byte(right)) {
			t.Errorf("the manifests do not hold %q any more", right)
		}
		if !slices.ContainsFunc(conform(t, strings.Replace(string(text), right, wrong, 1)), func(r validator.Result) bool {
			return r.Status != validator.Valid
		}) {
			t.Errorf("%q is taken", wrong)
		}
	}
}
