package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A bench is what all runs share: programs, ports, the upstream and Redis.
type bench struct {
	settings
	dir                           string
	binary                        string // of this tree
	nginxPath, wrkPath            string
	port, upstreamPort, redisPort int
	upstream, redis               *process
}

// newBench builds weir and starts what stays: the upstream, an nginx that answers
// with 1 KiB, and Redis.
func newBench(s settings) (*bench, error) {
	dir, err := os.MkdirTemp("", "weir-proxies-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, dir: dir, binary: filepath.Join(dir, "weir")}
	if out, err := exec.Command("go", "build", "-o", b.binary, "github.com/weir-proxy/weir").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build weir: %w: %s", err, out)
	}
	var redis string
	for name, path := range map[string]*string{"nginx": &b.nginxPath, "wrk": &b.wrkPath, "redis-server": &redis} {
		if *path, err = installed(name); err != nil {
			return nil, err
		}
	}
	for _, port := range []*int{&b.port, &b.upstreamPort, &b.redisPort} {
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	b.write("load.lua", load)
	conf := b.write("upstream.conf", fmt.Sprintf(`daemon off; worker_processes 1; pid %[1]s/upstream.pid; error_log %[1]s/upstream.err crit;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000; keepalive_timeout 300s;
  client_body_temp_path %[1]s/u1; proxy_temp_path %[1]s/u2; fastcgi_temp_path %[1]s/u3; uwsgi_temp_path %[1]s/u4; scgi_temp_path %[1]s/u5;
  server { listen 127.0.0.1:%[2]d backlog=4096; location / { return 200 "%[3]s"; } }
}
`, dir, b.upstreamPort, strings.Repeat("x", 1024)))
	if b.upstream, err = b.start(others, b.upstreamPort, b.nginxPath, "-p", dir, "-e", filepath.Join(dir, "upstream.err"), "-c", conf); err != nil {
		return nil, err
	}
	b.redis, err = b.start(others, b.redisPort, redis, "--bind", "127.0.0.1", "--port", strconv.Itoa(b.redisPort), "--save", "", "--appendonly", "no", "--dir", dir)
	return b, err
}

func (b *bench) close() {
	b.upstream.stop()
	b.redis.stop()
	os.RemoveAll(b.dir)
}

// installed is the path of a program, as test/install finds or installs it.
func installed(name string) (string, error) {
	top, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	cmd := exec.Command(filepath.Join(strings.TrimSpace(string(top)), "test", "install"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// freePort is a port of 127.0.0.1 that nobody listens on at this moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// measure runs one contestant under one workload.
func (b *bench) measure(ctx context.Context, c contestant, w workload) (result, error) {
	p, err := b.start(contestants, b.port, c.args...)
	if err != nil {
		return result{}, err
	}
	defer p.stop()
	if _, err := b.wrk(ctx, w, b.measured/3); err != nil {
		return result{}, err
	}
	proxy, redis := p.cpu(), b.redis.cpu()
	r, err := b.wrk(ctx, w, b.measured)
	if err != nil {
		return result{}, err
	}
	n := r.requests * b.measured.Seconds()
	r.cpu = (p.cpu() - proxy).Seconds() * 1e6 / n
	r.redis = (b.redis.cpu() - redis).Seconds() * 1e6 / n
	return r, nil
}

// said finds a number of wrk's output.
var said = regexp.MustCompile(`RESULT (\d+) ([\d.]+) (\d+) (\d+) (\d+)`)

// wrk puts load on the contestant and reads what wrk says of it.
func (b *bench) wrk(ctx context.Context, w workload, d time.Duration) (result, error) {
	args := append(pinned(others), b.wrkPath, "-t", "1", "-c", strconv.Itoa(b.connections), "-d", fmt.Sprintf("%.0fs", d.Seconds()),
		"-s", filepath.Join(b.dir, "load.lua"), fmt.Sprintf("http://127.0.0.1:%d/", b.port), "--", strconv.Itoa(w.keys))
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	m := said.FindStringSubmatch(string(out))
	if err != nil || m == nil {
		return result{}, fmt.Errorf("wrk: %w: %s", errors.Join(err, context.Cause(ctx)), out)
	}
	number := func(i int) float64 { n, _ := strconv.ParseFloat(m[i], 64); return n }
	total, refused := number(1), int(number(5))
	r := result{requests: total / number(2), p50: number(3) / 1000, p99: number(4) / 1000, odd: refused}
	if w.refuses {
		r.odd = max(0, int(total*0.95)-refused)
	}
	return r, nil
}

// load is the script of wrk: keys in rotation, and a line of figures at the end.
const load = `local requests, i = {}, 0
function init(args)
  for k = 1, tonumber(args[1]) do requests[k] = wrk.format("GET", "/", { ["X-Api-Key"] = "key-" .. k }) end
end
function request()
  i = i % #requests + 1
  return requests[i]
end
function done(summary, latency)
  local e = summary.errors
  if e.connect + e.read + e.write + e.timeout > 0 then error("sockets failed") end
  io.write(string.format("RESULT %d %.3f %d %d %d\n", summary.requests, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99), e.status))
end
`

// A side is which processors something has, where there are several.
type side int

const (
	contestants side = iota // the first
	others                  // the second
)

// pinned begins a command line that keeps to the processors of s.
func pinned(s side) []string {
	if _, err := exec.LookPath("taskset"); err != nil || runtime.NumCPU() < 2 {
		return nil
	}
	return []string{"taskset", "-c", strconv.Itoa(int(s))}
}

// A process is one that was started here, with all that it has started.
type process struct{ cmd *exec.Cmd }

// start starts a server and waits until it listens.
func (b *bench) start(s side, port int, args ...string) (*process, error) {
	args = append(pinned(s), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			c.Close()
			return p, nil
		}
	}
	p.stop()
	return nil, fmt.Errorf("%s does not listen on %d", strings.Join(args, " "), port)
}

// stop ends the process and those that it has started.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
}

// cpu is the time that the process and its children in the same group have had.
func (p *process) cpu() (total time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		if len(f) < 13 || f[2] != strconv.Itoa(p.cmd.Process.Pid) {
			continue
		}
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		total += time.Duration(user+system) * 10 * time.Millisecond // clock ticks of 1/100 s
	}
	return total
}
