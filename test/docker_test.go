package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
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
	b, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
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
	b, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A deployment is docker-compose.yml without containers: each command of its Redis and
// Sentinels as it stands there, run by a process of this machine with a folder instead
// of each volume, and each address in the files replaced by one of this machine.
type deployment struct {
	t       *testing.T
	compose composeYAML
	root    string            // holds what containers would have of their own
	addrs   map[string]string // of the services, by name
	spelled []string          // addresses as they stand in the files, each before the one here
	clients map[string]*redis.Client
}

func startDeployment(t *testing.T) *deployment {
	t.Helper()
	s := &deployment{t: t, compose: composeFile(t), root: t.TempDir(), addrs: map[string]string{}, clients: map[string]*redis.Client{}}
	for _, name := range slices.Sorted(maps.Keys(s.compose.Services)) {
		port := fmt.Sprint(redistest.FreePort(t))
		s.addrs[name] = net.JoinHostPort("127.0.0.1", port)
		if address := s.compose.Services[name].Networks["default"].Address; address != "" {
			s.spelled = append(s.spelled, address+" 6379", "127.0.0.1 "+port)
		}
		s.spelled = append(s.spelled, name+":26379", s.addrs[name])
	}
	return s
}

// text is a config with the addresses that things have here.
func (d *deployment) text(config string) string {
	return strings.NewReplacer(d.spelled...).Replace(d.compose.config(d.t, config))
}

// run starts the command of a Redis or a Sentinel, which listens on that port by its
// file, and waits until it answers. It ends with the test, or when the caller ends
// it.
func (d *deployment) run(name, port string) *exec.Cmd {
	d.t.Helper()
	service := d.compose.Services[name]
	data, etc := filepath.Join(d.root, name, "data"), filepath.Join(d.root, name, "etc")
	for _, dir := range []string{data, etc} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	_, own, _ := net.SplitHostPort(d.addrs[name])
	for _, config := range service.Configs {
		text := strings.Replace(d.text(config.Source), "port "+port+"\n", "port "+own+"\nbind 127.0.0.1\n", 1)
		write(d.t, filepath.Join(etc, filepath.Base(config.Target)), text)
	}
	here := strings.NewReplacer("/data/", data+"/", "/etc/", etc+"/", "redis-server ", redistest.Binary(d.t)+" ")
	command := slices.Clone(service.Command)
	for i := range command {
		command[i] = here.Replace(command[i])
	}
	cmd, said := exec.Command(command[0], command[1:]...), new(logtest.Log)
	cmd.Dir, cmd.Stdout, cmd.Stderr = data, said, said
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if d.t.Failed() {
			d.t.Logf("%s said:\n%s", name, said.Tail(30))
		}
	})
	await.Until(d.t, name+" answers", func() bool { return d.redis(name).Ping(d.t.Context()).Err() == nil })
	return cmd
}

// weir starts one with the config of that name; on a busy machine Redis has longer to
// answer.
func (d *deployment) weir(config string) *weir {
	d.t.Helper()
	dir := d.t.TempDir()
	text := strings.Replace(d.text(config), `http: ":9901"`, `http: "127.0.0.1:0"`, 1)
	text = strings.Replace(text, "master: weir,", "master: weir, timeout: 5s,", 1)
	text = strings.Replace(text, "${WEIR_ADMIN_TOKEN}", "a-long-token-for-a-test", 1)
	if !strings.Contains(text, "admin:") {
		text += "admin: {http: \"127.0.0.1:0\"}\n"
	}
	write(d.t, filepath.Join(dir, "weir.yaml"), text+"listen: {http: \"127.0.0.1:0\"}\n")
	return startWith(d.t, dir, "-c", "weir.yaml")
}

// redis speaks to a Redis or a Sentinel directly.
func (d *deployment) redis(name string) *redis.Client {
	d.t.Helper()
	if d.clients[name] == nil {
		d.clients[name] = redisClient(d.t, d.addrs[name])
	}
	return d.clients[name]
}

// waitForReplica waits until that Redis follows the other.
func (d *deployment) waitForReplica(name, master string) {
	d.t.Helper()
	_, port, _ := net.SplitHostPort(d.addrs[master])
	await.Within(d.t, 2*testTimeout, name+" follows "+master, func() bool {
		info := d.redis(name).Info(d.t.Context(), "replication").Val()
		return strings.Contains(info, "role:slave") && strings.Contains(info, "master_port:"+port+"\r") && strings.Contains(info, "master_link_status:up")
	})
}

// waitForSentinels waits until every Sentinel could replace the master, which is that one.
func (d *deployment) waitForSentinels(master string) {
	d.t.Helper()
	_, port, _ := net.SplitHostPort(d.addrs[master])
	for _, name := range sentinels() {
		await.Within(d.t, 2*testTimeout, name+" is one of a quorum", func() bool {
			c, ctx := d.redis(name), d.t.Context()
			quorum := c.Do(ctx, "sentinel", "ckquorum", "weir").String()
			return strings.Contains(quorum, "OK 3 usable") && strings.Contains(c.Do(ctx, "sentinel", "get-master-addr-by-name", "weir").String(), port)
		})
	}
}

// waitForPromotion waits until every Sentinel names that one the master, and it is.
func (d *deployment) waitForPromotion(name string) {
	d.t.Helper()
	_, port, _ := net.SplitHostPort(d.addrs[name])
	await.Within(d.t, 2*testTimeout, name+" is the master", func() bool {
		for _, sentinel := range sentinels() {
			if !strings.Contains(d.redis(sentinel).Do(d.t.Context(), "sentinel", "get-master-addr-by-name", "weir").String(), port) {
				return false
			}
		}
		return strings.Contains(d.redis(name).Info(d.t.Context(), "replication").Val(), "role:master")
	})
}

func sentinels() []string { return []string{"sentinel-1", "sentinel-2", "sentinel-3"} }

// sendAndLeft asks for a code and returns the answer's status and what is left of the phone
// in this hour.
func (w *weir) sendAndLeft(phone string) (status int, left string) {
	w.t.Helper()
	status, header, _ := exchange(w.t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {phone}})
	if m := regexp.MustCompile(`"phone-1h";r=(\d+)`).FindStringSubmatch(header.Get("Ratelimit")); m != nil {
		left = m[1]
	}
	return status, left
}

// What docker-compose.yml says holds together when processes of this machine do it:
// three Weirs share the counts, in the Redis that the Sentinels name; when that is
// killed its replica goes on with what was counted; and the old master, started
// again, follows the new.
func TestCompose_SharesAndSurvivesItsMaster(t *testing.T) {
	t.Parallel()
	s := startDeployment(t)
	master := s.run("redis-1", "6379")
	s.run("redis-2", "6379")
	s.waitForReplica("redis-2", "redis-1")
	for _, name := range sentinels() {
		s.run(name, "26379")
	}
	s.waitForSentinels("redis-1")
	s.spelled = append(s.spelled, "http://upstream:8080", s.weir("upstream").URL)
	weirs := []*weir{s.weir("weir"), s.weir("weir"), s.weir("weir")}

	if status, left := weirs[0].sendAndLeft("13800138000"); status != http.StatusOK || left != "4" {
		t.Errorf("the first request is answered %d with %q left in the hour, want 200 and 4", status, left)
	}
	if status, left := weirs[1].sendAndLeft("13800138000"); status != http.StatusTooManyRequests || left != "4" {
		t.Errorf("the second one, elsewhere, is answered %d with %q left, want 429 and 4", status, left)
	}
	counted := s.redis("redis-1").DBSize(t.Context()).Val()
	await.Until(t, "the replica has heard of it", func() bool {
		return counted > 0 && s.redis("redis-2").DBSize(t.Context()).Val() >= counted
	})

	master.Process.Kill()
	master.Wait()
	for i, w := range weirs {
		if status := w.send(fmt.Sprint("1390013900", i)); status != http.StatusOK {
			t.Errorf("without a master weir %d answers somebody new with %d, want 200", i, status)
		}
	}
	s.waitForPromotion("redis-2")
	for i, w := range weirs {
		await.Until(t, "the weir reaches the new master", func() bool {
			_, body := w.get(w.Admin + "/readyz")
			return !strings.Contains(body, "degraded")
		})
		// A minute may have gone by; the hour has not.
		if status, left := w.sendAndLeft("13800138000"); status == http.StatusOK && left == "4" || left == "" {
			t.Errorf("after the failover weir %d answers %d with %q left: it has forgotten", i, status, left)
		}
	}

	if testing.Short() {
		return // Sentinel takes its time to turn it round
	}
	s.run("redis-1", "6379")
	s.waitForReplica("redis-1", "redis-2")
	s.waitForSentinels("redis-2")
}

func dockerfile(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
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
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
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
