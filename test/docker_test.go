package test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/test/filetest"
)

// A composeYAML is what the tests need of docker-compose.yml.
type composeYAML struct {
	Services map[string]composeService
	Configs  map[string]struct{ File string }
	Volumes  map[string]any
}

// A composeService is one of its services.
type composeService struct {
	Build       any
	Image       string
	PullPolicy  string `yaml:"pull_policy"`
	Environment map[string]string
	Command     []string
	Ports       []string
	Volumes     []string
	Configs     []struct{ Source, Target string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct{ Test []string }
	Networks    map[string]struct {
		Address string `yaml:"ipv4_address"`
	}
}

func composeFile(t *testing.T) (c composeYAML) {
	t.Helper()
	b := filetest.Read(t, "../docker-compose.yml")
	check(t, yaml.Unmarshal(b, &c))
	return c
}

// config is the text of a config: the file that it names, or that of the Weirs that
// have a folder of this name mounted.
func (c composeYAML) config(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join("test", "deploy", name, "weir.yaml")
	if c.Configs[name].File != "" {
		file = c.Configs[name].File
	}
	b := filetest.Read(t, filepath.Join("..", file))
	return string(b)
}

func dockerfile(t *testing.T) string {
	t.Helper()
	b := filetest.Read(t, "../Dockerfile")
	return strings.ReplaceAll(string(b), "\\\n", " ")
}

// instruction is what stands behind a word at the beginning of a line.
func instruction(t *testing.T, word string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^`+word+` +(.+)$`).FindAllStringSubmatch(dockerfile(t), -1)
	if len(m) == 0 {
		t.Fatalf("the Dockerfile has no %s", word)
	}
	return m[len(m)-1][1]
}

func TestDocker_RunsWithoutRootAndShell(t *testing.T) {
	if user := instruction(t, "USER"); user != "65532:65532" {
		t.Errorf("the image runs as %s, want 65532:65532", user)
	}
	var entry, check []string
	if err := json.Unmarshal([]byte(instruction(t, "ENTRYPOINT")), &entry); err != nil {
		t.Errorf("ENTRYPOINT is not in exec form: %v", err)
	}
	_, probe, _ := strings.Cut(instruction(t, "HEALTHCHECK"), "CMD ")
	if err := json.Unmarshal([]byte(probe), &check); err != nil || len(check) != 2 || check[1] != "healthcheck" {
		t.Errorf("HEALTHCHECK is %q, want weir healthcheck in exec form (%v)", probe, err)
	}
	if !strings.Contains(dockerfile(t), "COPY --from=build /out/weir "+entry[0]+"\n") || check[0] != entry[0] {
		t.Errorf("ENTRYPOINT %v and HEALTHCHECK %v are not what was copied", entry, check)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	mod := filetest.Read(t, "../go.mod")
	if want := version.FindStringSubmatch(string(mod))[1]; !strings.Contains(dockerfile(t), "golang:"+want+"\n") {
		t.Errorf("the image is not built with go %s, as go.mod says", want)
	}
}

func TestDocker_ComposeFitsTogether(t *testing.T) {
	c := composeFile(t)
	weirs, builds, ports := 0, 0, map[string]bool{}
	for name, s := range c.Services {
		for _, port := range s.Ports {
			if ports[port] {
				t.Errorf("port %s is given twice", port)
			}
			ports[port] = true
		}
		for needed, how := range s.DependsOn {
			other, known := c.Services[needed]
			if !known {
				t.Errorf("%s depends on %s, which is not there", name, needed)
			}
			// Weir's image brings its own health check.
			if how.Condition == "service_healthy" && other.Image != "weir" && len(other.Healthcheck.Test) == 0 {
				t.Errorf("%s waits for %s to be healthy, which nobody checks", name, needed)
			}
		}
		for _, config := range s.Configs {
			if _, known := c.Configs[config.Source]; !known {
				t.Errorf("%s mounts %v", name, config)
			}
		}
		if s.Build != nil {
			builds++
		} else if s.Image == "weir" && (s.PullPolicy != "never" || s.DependsOn["upstream"].Condition == "") {
			t.Errorf("%s would look for weir in a registry, or start before it is built", name)
		}
		if s.Image == "weir" && len(s.Configs) > 0 {
			t.Errorf("%s has a config, which no Compose takes for a read-only container", name)
		}
		if slices.Contains(s.Volumes, "./test/deploy/weir:/etc/weir:ro") {
			weirs++
		}
	}
	if weirs != 3 || builds != 1 {
		t.Errorf("%d services serve the rules, and %d are built; want 3 and 1", weirs, builds)
	}
	for _, target := range regexp.MustCompile(`"([a-z0-9-]+):9901"`).FindAllStringSubmatch(readDeployFile(t, "prometheus.yaml"), -1) {
		if _, known := c.Services[target[1]]; !known {
			t.Errorf("Prometheus looks at %s, which is not there", target[1])
		}
	}
	for _, name := range []string{"redis", "replica"} {
		if !strings.Contains(c.config(t, name), "\nmaxmemory-policy noeviction\n") {
			t.Errorf("%s may throw counts away", name)
		}
	}
	for _, name := range []string{"weir", "upstream"} {
		t.Setenv("WEIR_ADMIN_TOKEN", "a-long-token-for-a-test")
		text := c.config(t, name)
		dir := t.TempDir()
		write(t, filepath.Join(dir, "weir.yaml"), text)
		if code, stdout, stderr := command(t, dir, "check", "weir.yaml"); code != 0 {
			t.Errorf("the config %s is not good: %s%s", name, stdout, stderr)
		}
		for _, host := range regexp.MustCompile(`([a-z0-9-]+):(?:8080|26379)`).FindAllStringSubmatch(text, -1) {
			if _, known := c.Services[host[1]]; !known {
				t.Errorf("the config %s names the host %s, which is not there", name, host[1])
			}
		}
	}
}
