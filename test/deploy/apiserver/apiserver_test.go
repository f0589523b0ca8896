// Package apiserver shows that Kubernetes takes the manifests: its own API server, with an etcd,
// applies them.
package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/api/meta"
	meta_v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	kube "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
)

// Definitions of kinds that are not Kubernetes' own, in the modules of those who publish them.
var definitions = []struct{ module, folder string }{
	{"sigs.k8s.io/gateway-api@v1.5.1", "config/crd/standard"},
	{"github.com/envoyproxy/gateway@v1.9.1", "charts/gateway-helm/charts/crds/crds/generated"},
	{"github.com/prometheus-operator/prometheus-operator@v0.94.0", "example/prometheus-operator-crd"},
}

// cluster is an API server and what asks it.
type cluster struct {
	client dynamic.Interface
	kinds  *restmapper.DeferredDiscoveryRESTMapper
}

func TestAPIServer_TakesTheManifests(t *testing.T) {
	c := start(t)
	for _, d := range definitions {
		c.define(t, d.module, d.folder)
	}
	for _, object := range objects(t, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: envoy-gateway-system}}")) {
		if err := c.apply(object); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range append(files, "../weir.k8s.yaml", "../rendered.yaml") {
		text, err := os.ReadFile(file)
		if file == "../rendered.yaml" {
			text, err = rendered(t)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects(t, text) {
			if err := c.apply(object); err != nil {
				t.Errorf("%s: %s %s: %v", file, object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func TestAPIServer_RefusesMistakes(t *testing.T) {
	c := start(t)
	text, err := os.ReadFile("../weir.k8s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for right, wrong := range map[string]string{
		"readinessProbe:":     "readynessProbe:",
		"replicas: 3":         "replicas: three",
		"minAvailable: 2":     "minAvailable: -2",
		"containerPort: 8080": "containerPort: 80800",
		"name: weir\n":        "name: We_ir\n",
	} {
		if !bytes.Contains(text, []byte(right)) {
			t.Errorf("the manifests do not hold %q any more", right)
		}
		var refused error
		for _, object := range objects(t, bytes.ReplaceAll(text, []byte(right), []byte(wrong))) {
			refused = errors.Join(refused, c.apply(object))
		}
		if refused == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// start starts an etcd and an API server; both end with the test.
func start(t *testing.T) *cluster {
	t.Helper()
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = t.TempDir(), "error", true
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{any}, []url.URL{any}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()

	storage := storagebackend.NewDefaultConfig("/registry", nil)
	storage.Transport.ServerList = []string{"http://" + etcd.Clients[0].Addr().String()}
	server := kube.StartTestServerOrDie(t, nil, []string{"--disable-admission-plugins=ServiceAccount"}, storage)
	t.Cleanup(server.TearDownFn)
	client, err := dynamic.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	asks, err := discovery.NewDiscoveryClientForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{client: client, kinds: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(asks))}
}

// apply applies an object as kubectl apply --server-side --validate=strict does.
func (c *cluster) apply(object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.kinds.Reset()
		mapping, err = c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = c.client.Resource(mapping.Resource).Namespace(cmp.Or(object.GetNamespace(), "default"))
	}
	text, err := json.Marshal(object)
	if err == nil {
		_, err = resource.Patch(context.Background(), object.GetName(), "application/apply-patch+yaml", text,
			meta_v1.PatchOptions{FieldManager: "test", FieldValidation: "Strict"})
	}
	return err
}

// define installs the definitions in a folder of a module, and waits until they are served.
func (c *cluster) define(t *testing.T, module, folder string) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = t.TempDir() // outside of any module
	out, err := download.Output()
	var at struct{ Dir string }
	if err != nil || json.Unmarshal(out, &at) != nil {
		t.Fatalf("%s: %v\n%s", module, err, out)
	}
	files, err := filepath.Glob(filepath.Join(at.Dir, folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no definitions in %s (%v)", module, folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects(t, text) {
			if object.GetKind() == "CustomResourceDefinition" {
				c.serve(t, object)
			}
		}
	}
}

// serve applies a definition and watches it until the server has established it.
func (c *cluster) serve(t *testing.T, definition *unstructured.Unstructured) {
	t.Helper()
	if err := c.apply(definition); err != nil {
		t.Fatalf("%s: %v", definition.GetName(), err)
	}
	mapping, err := c.kinds.RESTMapping(definition.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	watch, err := c.client.Resource(mapping.Resource).Watch(t.Context(), meta_v1.ListOptions{FieldSelector: "metadata.name=" + definition.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		now, is := event.Object.(*unstructured.Unstructured)
		if !is {
			continue
		}
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		for _, condition := range conditions {
			if condition, is := condition.(map[string]any); is && condition["type"] == "Established" && condition["status"] == "True" {
				return
			}
		}
	}
	t.Fatalf("%s is never established", definition.GetName())
}

// rendered is the chart with everything on that is off by default.
func rendered(t *testing.T) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if out, err := exec.Command("go", "test", "-C", "../helm", "-run", "TestChart_Values", ".", "-rendered", file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(file)
}

// objects are the objects of a file of YAML documents.
func objects(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if object.Object != nil {
			out = append(out, object)
		}
	}
}
