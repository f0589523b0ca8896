package helm

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var (
	update   = flag.Bool("update", false, "write weir.k8s.yaml anew, from the chart")
	rendered = flag.String("rendered", "", "the file to write the chart into, with all of its options on")
)

const everything = "autoscaling: {enabled: true}\npodMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboard: {enabled: true}"

const head = `# Three nodes of Weir on Kubernetes, in front of a service named sms-api, with counts in a
# Redis named redis. Push the image to your registry and name it here, or in an overlay of
# kustomize. It is what the chart in chart/ renders; do not edit it:
# go test -C test/deploy/helm -update
`

func load(t *testing.T) *chart.Chart {
	t.Helper()
	slog.SetLogLoggerLevel(slog.LevelWarn) // Helm tells of each link
	c, err := loader.LoadDir("../chart")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the manifests of the chart, by the name of the template.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	given, err := loader.LoadValues(strings.NewReader(values))
	if err != nil {
		t.Fatal(err)
	}
	c := load(t)
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "weir", Namespace: "default", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, text := range files {
		if strings.TrimSpace(text) != "" && path.Ext(name) == ".yaml" {
			out[path.Base(name)] = strings.TrimSpace(text) + "\n"
		}
	}
	return out, nil
}

// joined is what helm template prints, without its comments.
func joined(files map[string]string) string {
	order := []string{"configmap.yaml", "deployment.yaml", "service.yaml"}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	var parts []string
	for _, name := range order {
		if text := files[name]; text != "" {
			parts = append(parts, strings.TrimPrefix(text, "---\n"))
		}
	}
	return strings.Join(parts, "---\n")
}

// objects reads manifests as Kubernetes does: an unknown field is an error.
func objects(manifests string) (map[string]any, error) {
	kinds := map[string]any{
		"v1 ConfigMap": core.ConfigMap{}, "v1 Service": core.Service{}, "apps/v1 Deployment": apps.Deployment{},
		"policy/v1 PodDisruptionBudget": policy.PodDisruptionBudget{}, "networking.k8s.io/v1 NetworkPolicy": network.NetworkPolicy{},
		"autoscaling/v2 HorizontalPodAutoscaler": autoscaling.HorizontalPodAutoscaler{}, "networking.k8s.io/v1 Ingress": network.Ingress{},
		// those of others; schemas/ knows all their fields
		"monitoring.coreos.com/v1 PodMonitor": podMonitor{}, "monitoring.coreos.com/v1 PrometheusRule": map[string]any{},
		"gateway.networking.k8s.io/v1 HTTPRoute": httpRoute{}, "gateway.networking.k8s.io/v1 Gateway": map[string]any{},
		"gateway.envoyproxy.io/v1alpha1 BackendTrafficPolicy": map[string]any{},
	}
	out := map[string]any{}
	for text := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		var is struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(text), &is); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, text)
		}
		zero := kinds[is.APIVersion+" "+is.Kind]
		if zero == nil {
			return nil, fmt.Errorf("%s %s is known to nobody here", is.APIVersion, is.Kind)
		}
		object := reflect.New(reflect.TypeOf(zero)).Interface()
		if err := yaml.UnmarshalStrict([]byte(text), object, yaml.DisallowUnknownFields); err != nil {
			return nil, fmt.Errorf("%s: %w in\n%s", is.Kind, err, text)
		}
		out[is.Kind+" "+is.Metadata.Name] = object
	}
	return out, nil
}

// weir.k8s.yaml, which is also the base of kustomize, is the rendering of the chart.
func TestChart_ManifestsAreItsRendering(t *testing.T) {
	files, err := render(t, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(head + joined(files))
	if *update {
		if err := os.WriteFile("../weir.k8s.yaml", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("../weir.k8s.yaml")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("weir.k8s.yaml is not what the chart renders (%v); run go test -C test/deploy/helm -update\n%s", err, want)
	}
}

// A field that Kubernetes does not know, one that stands twice and a value of the
// wrong kind do not get past these checks.
func TestChart_MistakesAreSeen(t *testing.T) {
	text, err := os.ReadFile("../weir.k8s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objects(string(text)); err != nil {
		t.Fatal(err)
	}
	for right, wrong := range map[string]string{
		"readinessProbe:":                   "readynessProbe:",
		"failureThreshold: 2":               "failuresThreshold: 2",
		"replicas: 3":                       "replicas: three",
		"replicas: 3\n":                     "replicas: 3\n  replicas: 4\n",
		"targetPort: http":                  "target: http",
		"  minAvailable: 2":                 "  minimum: 2",
		"terminationGracePeriodSeconds: 40": "terminationGracePeriodSeconds: 40s",
	} {
		if !bytes.Contains(text, []byte(right)) {
			t.Errorf("the manifests do not hold %q any more", right)
		}
		if _, err := objects(strings.Replace(string(text), right, wrong, 1)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// kubectl apply -k reads no file outside of the folder.
func TestChart_KustomizeBase(t *testing.T) {
	text, err := os.ReadFile("../kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}
	if err := yaml.UnmarshalStrict(text, &k, yaml.DisallowUnknownFields); err != nil || k.Kind != "Kustomization" || !slices.Equal(k.Resources, []string{"weir.k8s.yaml"}) {
		t.Errorf("the base is %+v (%v)", k, err)
	}
}

func TestChart_LintFindsNothing(t *testing.T) {
	for _, m := range lint.RunAll("../chart", nil, "default").Messages {
		if m.Severity > support.InfoSev {
			t.Errorf("%s", m)
		}
	}
}

// chartValues is a matrix of values, each with what its rendering holds.
func chartValues() map[string]string {
	return map[string]string{
		"{}": "image: \"weir:0.1.0\"",
		"image: {repository: registry.example/weir, tag: v9, pullPolicy: Always}\nimagePullSecrets: [{name: pull}]": "image: \"registry.example/weir:v9\"",
		"existingConfigMap: mine":                                              "configMap: {name: mine}",
		"existingSecret: mine":                                                 "secretRef: {name: mine}",
		"config: |\n  reload: {source: redis}\n":                               "    reload: {source: redis}\n",
		"autoscaling: {enabled: true, maxReplicas: 20}":                        "maxReplicas: 20",
		"podDisruptionBudget: {enabled: false}\nreplicas: 1":                   "replicas: 1",
		"networkPolicy: {clients: [{podSelector: {matchLabels: {app: web}}}]}": "app: web",
		"podMonitor: {enabled: true, labels: {release: prometheus}}":           "release: prometheus",
		"prometheusRule: {enabled: true}":                                      "- alert: WeirDown",
		"dashboard: {enabled: true}":                                           "grafana_dashboard: \"1\"",
		"podLabels: {team: a}\npodAnnotations: {note: b}\nnodeSelector: {disk: ssd}\npriorityClassName: high":       "priorityClassName: high",
		"tolerations: [{key: a, operator: Exists}]\naffinity: {podAntiAffinity: {}}\nenv: [{name: A, value: b}]":    "value: b",
		"extraVolumes: [{name: tls, secret: {secretName: tls}}]\nextraVolumeMounts: [{name: tls, mountPath: /tls}]": "mountPath: /tls",
		"service: {type: LoadBalancer, port: 8000, annotations: {a: b}}\nports: {http: 8000, admin: 9000}":          "containerPort: 9000",
	}
}

// Each gives objects that Kubernetes takes, and that hold what it is about.
func TestChart_Values(t *testing.T) {
	for values, want := range chartValues() {
		files, err := render(t, values)
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		manifests := joined(files)
		if _, err := objects(manifests); err != nil {
			t.Errorf("%s: %v", values, err)
		}
		if !strings.Contains(manifests, want) {
			t.Errorf("%s does not lead to %q:\n%s", values, want, manifests)
		}
	}
	if *rendered != "" {
		files, err := render(t, everything)
		if err == nil {
			err = os.WriteFile(*rendered, []byte(joined(files)), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for values, absent := range map[string]string{
		"existingConfigMap: mine":               "kind: ConfigMap",
		"existingSecret: \"\"":                  "envFrom",
		"autoscaling: {enabled: true}":          "  replicas:",
		"networkPolicy: {enabled: false}":       "kind: NetworkPolicy",
		"podDisruptionBudget: {enabled: false}": "kind: PodDisruptionBudget",
	} {
		files, err := render(t, values)
		if manifests := joined(files); err != nil || strings.Contains(manifests, absent) {
			t.Errorf("%s: %v, or it leaves %q:\n%s", values, err, absent, manifests)
		}
	}
}

func TestChart_WrongValuesAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 3":                                "replica",
		"replicas: three":                           "replicas",
		"service: {type: Node}":                     "type",
		"ports: {http: 70000, admin: 1}":            "http",
		"image: {repository: \"\"}":                 "repository",
		"config: {listen: {http: a}}":               "config",
		"replicas: 2":                               "no node could ever be drained",
		"podMonitor: {enabled: true, interval: 15}": "interval",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something about %q", values, err, want)
		}
	}
}

// Every value of the chart is in its schema, and the other way round.
func TestChart_SchemaKnowsEveryValue(t *testing.T) {
	var schema struct{ Properties map[string]any }
	c := load(t)
	if err := yaml.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // Helm's own
	if got, want := slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(maps.Keys(c.Values)); !slices.Equal(got, want) {
		t.Errorf("the schema has %v, values.yaml %v", got, want)
	}
}

// Service, probes and policies go to ports that the container has, and select its pods.
func TestChart_NamesFit(t *testing.T) {
	files, err := render(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects(joined(files))
	if err != nil {
		t.Fatal(err)
	}
	pod := all["Deployment weir"].(*apps.Deployment).Spec.Template
	monitor := all["PodMonitor weir"].(*podMonitor)
	for what, selector := range map[string]map[string]string{
		"Deployment": all["Deployment weir"].(*apps.Deployment).Spec.Selector.MatchLabels, "Service": all["Service weir"].(*core.Service).Spec.Selector,
		"budget": all["PodDisruptionBudget weir"].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels,
		"policy": all["NetworkPolicy weir"].(*network.NetworkPolicy).Spec.PodSelector.MatchLabels, "monitor": monitor.Spec.Selector.MatchLabels,
	} {
		for name, value := range selector {
			if pod.Labels[name] != value {
				t.Errorf("%s selects %v, the pods have %v", what, selector, pod.Labels)
			}
		}
		if len(selector) < 2 {
			t.Errorf("%s selects %v", what, selector)
		}
	}
	if scaler := all["HorizontalPodAutoscaler weir"].(*autoscaling.HorizontalPodAutoscaler); scaler.Spec.ScaleTargetRef.Name != "weir" {
		t.Errorf("what is scaled is %v", scaler.Spec.ScaleTargetRef)
	}
	if monitor.Spec.PodMetricsEndpoints[0].Port != pod.Spec.Containers[0].Ports[1].Name {
		t.Errorf("the monitor asks %v", monitor.Spec.PodMetricsEndpoints)
	}
}

// The examples are good, and lead to the service of the chart.
func TestChart_Examples(t *testing.T) {
	for _, name := range []string{"ingress.yaml", "gateway.yaml"} {
		text, err := os.ReadFile("../examples/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := objects(string(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var to string
		var port int32
		switch name {
		case "ingress.yaml":
			backend := all["Ingress api"].(*network.Ingress).Spec.Rules[0].HTTP.Paths[0].Backend.Service
			to, port = backend.Name, backend.Port.Number
		case "gateway.yaml":
			backend := all["HTTPRoute api"].(*httpRoute).Spec.Rules[0].BackendRefs[0]
			to, port = backend.Name, backend.Port
		}
		if to != "weir" || port != 80 {
			t.Errorf("%s leads to %s:%d", name, to, port)
		}
	}
}
