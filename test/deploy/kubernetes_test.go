package deploy

import (
	"os"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the documents of weir.k8s.yaml in Kubernetes' own types, by their
// kind.
func manifests(t *testing.T, text string) (map[string]any, error) {
	t.Helper()
	out := map[string]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		var object any
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 ConfigMap":
			object = new(core.ConfigMap)
		case "v1 Service":
			object = new(core.Service)
		case "apps/v1 Deployment":
			object = new(apps.Deployment)
		case "policy/v1 PodDisruptionBudget":
			object = new(policy.PodDisruptionBudget)
		case "networking.k8s.io/v1 NetworkPolicy":
			object = new(network.NetworkPolicy)
		default:
			t.Fatalf("%s %s is known to nobody here: add it to this test", kind.APIVersion, kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object, yaml.DisallowUnknownFields); err != nil {
			return nil, err
		}
		out[kind.Kind] = object
	}
	return out, nil
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Kubernetes knows every field and takes every value, and what belongs together
// has the same names.
func TestKubernetes_FieldsAndNamesAreRight(t *testing.T) {
	all, err := manifests(t, read(t, "weir.k8s.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deployment := all["Deployment"].(*apps.Deployment)
	service := all["Service"].(*core.Service)
	budget := all["PodDisruptionBudget"].(*policy.PodDisruptionBudget)
	fence := all["NetworkPolicy"].(*network.NetworkPolicy)
	pod := deployment.Spec.Template
	for what, selector := range map[string]map[string]string{
		"the Deployment": deployment.Spec.Selector.MatchLabels,
		"the Service":    service.Spec.Selector,
		"the budget":     budget.Spec.Selector.MatchLabels,
		"the policy":     fence.Spec.PodSelector.MatchLabels,
		"the spread":     pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		if len(selector) == 0 || !within(selector, pod.Labels) {
			t.Errorf("%s selects %v; the pods are %v", what, selector, pod.Labels)
		}
	}
	container := pod.Spec.Containers[0]
	ports := map[string]bool{}
	for _, port := range container.Ports {
		ports[port.Name] = true
	}
	for what, port := range map[string]string{
		"the Service":         service.Spec.Ports[0].TargetPort.String(),
		"the readiness probe": container.ReadinessProbe.HTTPGet.Port.String(),
		"the liveness probe":  container.LivenessProbe.HTTPGet.Port.String(),
		"the policy":          fence.Spec.Ingress[0].Ports[0].Port.String(),
		"the policy's second": fence.Spec.Ingress[1].Ports[0].Port.String(),
	} {
		if !ports[port] {
			t.Errorf("%s goes to the port %s; the container has %v", what, port, ports)
		}
	}
	if volume := pod.Spec.Volumes[0]; volume.Name != container.VolumeMounts[0].Name || volume.ConfigMap.Name != all["ConfigMap"].(*core.ConfigMap).Name {
		t.Errorf("the container mounts %s, the pod has %s of %s", container.VolumeMounts[0].Name, volume.Name, volume.ConfigMap.Name)
	}
	if rule := fence.Spec.Ingress[1]; rule.Ports[0].Port.String() != "admin" || len(rule.From) == 0 {
		t.Errorf("anybody reaches the admin listener: %v", rule)
	}
	if budget.Spec.MinAvailable.IntValue() >= int(*deployment.Spec.Replicas) {
		t.Errorf("of %d pods %d must stay: no node could ever be emptied", *deployment.Spec.Replicas, budget.Spec.MinAvailable.IntValue())
	}
}

func within(part, whole map[string]string) bool {
	for name, value := range part {
		if whole[name] != value {
			return false
		}
	}
	return true
}

// A field that Kubernetes does not know, one that stands twice and a value of the
// wrong kind do not get past this check.
func TestKubernetes_MistakesAreSeen(t *testing.T) {
	text := read(t, "weir.k8s.yaml")
	for right, wrong := range map[string]string{
		"readinessProbe:":                   "readynessProbe:",
		"failureThreshold: 2":               "failuresThreshold: 2",
		"replicas: 3":                       "replicas: three",
		"replicas: 3\n":                     "replicas: 3\n  replicas: 4\n",
		"targetPort: http":                  "target: http",
		"  minAvailable: 2":                 "  minimum: 2",
		"terminationGracePeriodSeconds: 40": "terminationGracePeriodSeconds: 40s",
	} {
		if !strings.Contains(text, right) {
			t.Errorf("the manifests do not hold %q any more", right)
		}
		if _, err := manifests(t, strings.Replace(text, right, wrong, 1)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
