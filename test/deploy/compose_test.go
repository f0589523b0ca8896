// Package deploy checks what this folder and docker-compose.yml hold with the
// programs and the types of those who will read them: Compose's own loader,
// Kubernetes' own types, Prometheus' own promtool.
package deploy

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// loaded is docker-compose.yml as Compose understands it: a field that it does not
// know, a service, a volume or a network that is not there is an error.
func loaded(t *testing.T, environment types.Mapping) *types.Project {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  top,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(top, "docker-compose.yml")}},
		Environment: environment,
	}, func(o *loader.Options) {
		o.SetProjectName("weir", true)
		o.ResolvePaths = true
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// What is mounted exists, and can be read by whoever the container runs as.
func TestCompose_MountsWhatIsThere(t *testing.T) {
	project, files := loaded(t, nil), 0
	readable := func(what, path string) {
		if info, err := os.Stat(path); err == nil && info.IsDir() { // a Weir's: an edit is a new file
			path = filepath.Join(path, "weir.yaml")
		}
		files++
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s mounts %s, which is no file that all may read: %v", what, path, err)
		}
	}
	for name, service := range project.Services {
		for _, volume := range service.Volumes {
			switch volume.Type {
			case types.VolumeTypeBind:
				readable(name, volume.Source)
				if !volume.ReadOnly {
					t.Errorf("%s could write into %s", name, volume.Source)
				}
			case types.VolumeTypeVolume:
				if _, known := project.Volumes[volume.Source]; !known {
					t.Errorf("%s mounts the volume %s, which is not there", name, volume.Source)
				}
			default:
				t.Errorf("%s mounts a %s", name, volume.Type)
			}
		}
	}
	for name, config := range project.Configs {
		readable("the config "+name, config.File)
	}
	if files < 8 {
		t.Errorf("%d files are mounted", files)
	}
}

// Each image that others made is of one version, or what runs tomorrow is not what
// was tried today; and each service says whether it is well.
func TestCompose_VersionsAndHealth(t *testing.T) {
	project := loaded(t, nil)
	exact := regexp.MustCompile(`^[a-z/]+:v?\d+\.\d+\.\d+$`)
	for name, service := range project.Services {
		if service.Image == "weir" {
			if dockerfile, err := os.ReadFile("../../Dockerfile"); err != nil || !strings.Contains(string(dockerfile), "\nHEALTHCHECK ") {
				t.Errorf("%s: nobody checks its health: %v", name, err)
			}
			continue
		}
		if !exact.MatchString(service.Image) {
			t.Errorf("%s is of %s, want three numbers", name, service.Image)
		}
		if service.HealthCheck == nil || len(service.HealthCheck.Test) < 2 {
			t.Errorf("%s: nobody checks its health", name)
		}
	}
	for name, service := range project.Services {
		for needed, how := range service.DependsOn {
			if how.Condition != types.ServiceConditionHealthy {
				t.Errorf("%s waits for %s to be %s only", name, needed, how.Condition)
			}
		}
	}
	for _, watched := range []string{"weir-1", "weir-2", "weir-3", "redis-1", "redis-2", "sentinel-1", "sentinel-2", "sentinel-3", "prometheus", "grafana"} {
		if _, there := project.Services[watched]; !there {
			t.Errorf("there is no %s", watched)
		}
	}
}

// Only Weir is for others than this machine, and the one secret is the operator's
// to choose.
func TestCompose_KeepsToItself(t *testing.T) {
	project := loaded(t, types.Mapping{"WEIR_ADMIN_TOKEN": "chosen by the operator"})
	for name, service := range project.Services {
		for _, port := range service.Ports {
			if !strings.HasPrefix(name, "weir-") && port.HostIP != "127.0.0.1" {
				t.Errorf("%s is open to others at %s", name, port.Published)
			}
		}
		for field, value := range service.Environment {
			secret := regexp.MustCompile(`(?i)password|secret|token`).MatchString(field)
			if value == nil || secret && *value != "chosen by the operator" && *value != "" {
				t.Errorf("%s: %s is not the operator's to choose", name, field)
			}
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	token := loaded(t, nil).Services["weir-1"].Environment["WEIR_ADMIN_TOKEN"]
	if token == nil || len(*token) < 16 || !strings.Contains(string(readme), *token) || !strings.Contains(string(readme), "WEIR_ADMIN_TOKEN=") {
		t.Error("the README does not explain the token, or it is short")
	}
}

// No container is killed while it drains.
func TestCompose_StopsNobodyWhoDrains(t *testing.T) {
	for name, service := range loaded(t, nil).Services {
		if service.Image == "weir" && (service.StopGracePeriod == nil || time.Duration(*service.StopGracePeriod) < 40*time.Second) {
			t.Errorf("%s has %v to stop", name, service.StopGracePeriod)
		}
	}
}

// The two Redis have the addresses that their files and the Sentinels' speak of, in
// the network, and outside the part from which others are given theirs.
func TestCompose_AddressesAgree(t *testing.T) {
	project := loaded(t, nil)
	master := project.Services["redis-1"].Networks["default"].Ipv4Address
	if master == "" || master == project.Services["redis-2"].Networks["default"].Ipv4Address {
		t.Fatalf("the Redis have the addresses %q and %q", master, project.Services["redis-2"].Networks["default"].Ipv4Address)
	}
	for file, line := range map[string]string{
		"redis-2.conf":  "replicaof " + master + " 6379",
		"sentinel.conf": "sentinel monitor weir " + master + " 6379 2",
	} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("%s does not say %q: %v", file, line, err)
		}
	}
	pool := project.Networks["default"].Ipam.Config[0]
	if !contains(t, pool.Subnet, master) || contains(t, pool.IPRange, master) {
		t.Errorf("%s is not in %s, or in %s, which is for others", master, pool.Subnet, pool.IPRange)
	}
}

// contains says whether the network has the address.
func contains(t *testing.T, network, address string) bool {
	t.Helper()
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	return prefix.Contains(addr)
}

// The versions that are tried here are those that run.
func TestCompose_PrometheusIsTheOneThatChecked(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	tried := regexp.MustCompile(`github\.com/prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)`).FindStringSubmatch(string(mod))
	if tried == nil {
		t.Fatal("go.mod names no version of Prometheus")
	}
	var minor int
	fmt.Sscan(tried[2], &minor)
	if got, want := loaded(t, nil).Services["prometheus"].Image, fmt.Sprintf("prom/prometheus:v%s.%d.%s", tried[1], minor, tried[3]); got != want {
		t.Errorf("the image is %s, promtool here of %s", got, want)
	}
}

// Every file of this folder is mounted, checked or explained: none is left over. What Kubernetes reads is
// looked at in the folders helm and apiserver, and what other proxies read in test/interop/peers.
func TestDeploy_NoFileIsForgotten(t *testing.T) {
	known := "weir.k8s.yaml weir.service weir.socket weir.rules.test.yaml README.md go.mod go.sum run compose/go.mod compose/go.sum kustomization.yaml"
	elsewhere := regexp.MustCompile(`^(chart|examples|helm|apiserver|decide)/`)
	compose, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasSuffix(path, "_test.go") && !elsewhere.MatchString(path) &&
			!strings.Contains(known, path) && !strings.Contains(string(compose), "./test/deploy/"+strings.TrimSuffix(path, "/weir.yaml")) {
			t.Errorf("nobody uses %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
