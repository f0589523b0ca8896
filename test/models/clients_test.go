//go:build models

package models

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/processgroup"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// installed is the path of a program that interop/models/run has put in place.
func installed(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("WEIR_MODEL_CLIENTS")
	if folder == "" {
		t.Fatal("WEIR_MODEL_CLIENTS is not set: run ./test/interop/models/run, which gets the programs first")
	}
	return filepath.Join(folder, name)
}

// The official clients of OpenAI and Anthropic are told what Weir has counted. Who leaves a stream pays for what was reserved.
func TestClients_AreToldWhatIsCounted(t *testing.T) {
	up := httptest.NewServer(&Server{})
	t.Cleanup(up.Close)
	w := gateway(t, up.URL, "")
	var failure bytes.Buffer
	client := exec.Command(installed(t, "python"), "../interop/models/client.py", w.URL)
	client.Stderr = &failure
	out, err := client.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, &failure)
	}
	told := strings.Split(strings.TrimSpace(string(out)), "\n")
	var counted []string
	await.Until(t, "all exchanges are in the log", func() bool {
		counted = nil
		for _, l := range w.Log.Lines() {
			if l.Text("message") == "request" {
				counted = append(counted, l.Text("used"))
			}
		}
		return len(counted) >= len(told)
	})
	for i, line := range told {
		var read, written, input, cache, output int
		words := strings.Fields(line)
		name := strings.Join(words[:len(words)-2], " ")
		_, _ = fmt.Sscan(strings.Join(words[len(words)-2:], " "), &read, &written)
		if name == "chat that is left" {
			if counted[i] != "cut" {
				t.Errorf("%s: %q; want what was reserved", name, counted[i])
			}
			continue
		}
		for _, part := range strings.Fields(counted[i])[1:] {
			for format, n := range map[string]*int{"input=%d": &input, "cached=%d": &cache, "output=%d": &output} {
				_, _ = fmt.Sscanf(part, format, n)
			}
		}
		if read == 0 || input+cache != read || output != written {
			t.Errorf("%s was told %d and %d tokens; counted are %s", name, read, written, counted[i])
		}
		t.Logf("%s: told %d + %d, counted %s", name, read, written, counted[i])
	}
}

// 50 requests of 2,000 tokens at once, against 20,000 a minute: what Weir lets pass, and what LiteLLM's proxy does, whose router
// counts tokens in Redis by usage-based-routing-v2 with checks before calls. Of LiteLLM nothing is demanded.
func TestManyAtOnce_BesideLiteLLM(t *testing.T) {
	redis := redistest.Start(t)
	model := &Server{}
	up := httptest.NewServer(model)
	t.Cleanup(up.Close)
	weir := weirtest.Start(t, exec.Command("weir", "-c", weirtest.Write(t, weirtest.Listeners+fmt.Sprintf("store: redis\nredis: {addrs: ['%s']}\nroutes:\n  - {name: chat, match: {methods: [POST], path: /v1/chat/completions}, upstream: '%s', usage: {format: openai, ensure_usage: true}, limits: [{name: tokens, key: global, rate: 20000/1m, max_cost: 20000, cost: {reserve: [json:/max_tokens], input: bytes}}]}\n", redis.Addr, up.URL))))
	const body = `{"model":"m","max_tokens":1800,"messages":[{"role":"user","content":"a prompt of 50 tokens, which has two hundred bytes in all......................................................................"}]}`
	for name, url := range map[string]string{"Weir": weir.URL, "LiteLLM": liteLLM(t, redis.Addr, up.URL)} {
		all := &crowd{size: 50, gone: make(chan struct{})}
		model.Wait = all.wait
		before := model.Used.Load()
		var requests sync.WaitGroup
		var passed atomic.Int64
		for range 50 {
			requests.Go(func() {
				r, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(r.Body)
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					passed.Add(1)
				} else if all.decide(); r.StatusCode != http.StatusTooManyRequests {
					t.Errorf("%s: %d %.300s", name, r.StatusCode, text)
				}
			})
		}
		requests.Wait()
		t.Logf("%s: %d of 50 passed, with %d tokens of 20000", name, passed.Load(), model.Used.Load()-before)
		if name == "Weir" && (len(body) != 200 || passed.Load() != 10) {
			t.Errorf("%d passed; want 10, for each of which %d bytes and 1800 tokens are reserved", passed.Load(), len(body))
		}
	}
}

// liteLLM starts LiteLLM's proxy with the models at that URL, and returns its own.
func liteLLM(t *testing.T, redis, models string) (url string) {
	host, port, _ := net.SplitHostPort(redis)
	at := redistest.FreePort(t)
	file := weirtest.Write(t, fmt.Sprintf(`model_list:
  - model_name: m
    litellm_params: {model: openai/m, api_base: "%s/v1", api_key: k, tpm: 20000}
router_settings: {routing_strategy: usage-based-routing-v2, enable_pre_call_checks: true, num_retries: 0, redis_host: "%s", redis_port: %s}
litellm_settings: {num_retries: 0, request_timeout: 60}
`, models, host, port))
	p := exec.Command(installed(t, "litellm"), "--config", file, "--host", "127.0.0.1", "--port", fmt.Sprint(at))
	p.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_TELEMETRY=False", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true")
	processgroup.Lead(p)
	said := new(logtest.Log)
	p.Stdout, p.Stderr = said, said
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		processgroup.Signal(p, syscall.SIGKILL)
		_ = p.Wait()
		if t.Failed() {
			t.Log(said)
		}
	})
	url = fmt.Sprintf("http://127.0.0.1:%d", at)
	await.Within(t, 3*time.Minute, "LiteLLM is ready", func() bool {
		r, err := http.Get(url + "/health/liveliness")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return url
}
