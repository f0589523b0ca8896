package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// measure runs one contestant under one workload.
func (b *bench) measure(ctx context.Context, c contestant, w workload) (result, error) {
	p, err := b.start(contestants, b.port, c.args...)
	if err != nil {
		return result{}, err
	}
	defer p.stop()
	var asked *process
	if c.asked != nil {
		if asked, err = b.start(contestants, b.decidePort, c.asked...); err != nil {
			return result{}, err
		}
		defer asked.stop()
	}
	silent, err := b.keepIdle(w.idle)
	defer closeAll(silent)
	if err != nil {
		return result{}, err
	}
	if _, err := b.put(ctx, w, max(b.measured/3, time.Second)); err != nil {
		return result{}, err
	}
	proxy, decisions, redis := p.cpu(), asked.cpu(), b.redis.cpu()
	r, err := b.put(ctx, w, b.measured)
	if err == nil && r.requests == 0 {
		err = errors.New("no request was answered")
	}
	if err != nil {
		return result{}, err
	}
	n := r.requests * b.measured.Seconds()
	r.asked = (asked.cpu() - decisions).Seconds() * 1e6 / n
	r.cpu = (p.cpu()-proxy).Seconds()*1e6/n + r.asked
	r.redis = (b.redis.cpu() - redis).Seconds() * 1e6 / n
	return r, nil
}

// said finds the numbers of whatever put the load.
var said = regexp.MustCompile(`RESULT (\d+) ([\d.]+) (\d+) (\d+) (\d+)`)

// put puts load on the contestant and reads what came of it.
func (b *bench) put(ctx context.Context, w workload, d time.Duration) (result, error) {
	connections := b.connections
	if w.http2 || w.answer == long || w.upload == long {
		connections = min(connections, 8)
	}
	args := append(b.pinned(others), b.generator(w, connections, d)...)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	m := said.FindStringSubmatch(string(out))
	if err != nil || m == nil {
		return result{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), out)
	}
	number := func(i int) float64 { n, _ := strconv.ParseFloat(m[i], 64); return n }
	total, failed := number(1), int(number(5))
	r := result{requests: total / number(2), p50: number(3) / 1000, p99: number(4) / 1000, odd: failed}
	if w.refuses {
		r.odd = max(0, int(total*0.95)-failed)
	}
	return r, nil
}

// generator is the program that puts the load of w, and its arguments.
func (b *bench) generator(w workload, connections int, d time.Duration) []string {
	url := fmt.Sprintf("%s://%s%s", w.scheme(), local(b.port), w.path())
	switch {
	case w.http2:
		return []string{b.self, "http2", b.h2loadPath, url, strconv.Itoa(connections), d.String()}
	case w.rate > 0:
		return []string{b.self, "pace", url, strconv.Itoa(w.rate), strconv.Itoa(connections), d.String(), strconv.Itoa(w.keys)}
	}
	threads := min(b.of(others), connections)
	return []string{b.wrkPath, "-t", strconv.Itoa(threads), "-c", strconv.Itoa(connections), "-d", fmt.Sprintf("%.0fs", d.Seconds()),
		"--timeout", "10s", "-s", filepath.Join(b.dir, "load.lua"), url, "--", strconv.Itoa(w.keys), strconv.Itoa(w.upload)}
}

// path is what is asked for.
func (w *workload) path() string {
	switch {
	case w.routes > 0:
		return fmt.Sprintf("/r%d/", w.routes-1)
	case w.answer != short:
		return fmt.Sprintf("/%d", w.answer)
	}
	return "/"
}

// load is the script of wrk: keys in rotation, and a line of figures at the end.
const load = `local requests, i = {}, 0
function init(args)
  local body, method, size = nil, "GET", tonumber(args[2])
  if size > 0 then body, method = string.rep("x", size), "POST" end
  for k = 1, tonumber(args[1]) do requests[k] = wrk.format(method, nil, { ["X-Api-Key"] = "key-" .. k }, body) end
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

// keepIdle makes connections that have had one answer and stay open.
func (b *bench) keepIdle(n int) (all []net.Conn, err error) {
	for range n {
		c, err := net.Dial("tcp", local(b.port))
		if err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
		all = append(all, c)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return all, fmt.Errorf("keep idle: %w", err)
		}
	}
	return all, nil
}

func closeAll(all []net.Conn) {
	for _, c := range all {
		_ = c.Close()
	}
}
