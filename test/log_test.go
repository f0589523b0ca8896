package test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestLog_OneLinePerRequest(t *testing.T) {
	w := start(t, smsYAML("1/1h", ""))
	w.statuses("+1 650 555 0100", 2)
	w.WaitForLog("request", func(l logtest.Line) bool { return l.Text("status") == "200" })
	refused := w.WaitForLog("request", func(l logtest.Line) bool { return l.Text("status") == "429" })
	for field, want := range map[string]string{
		"route": "sms-send", "method": "POST", "path": "/v1/sms/send", "limit": "phone", "client": "127.0.0.1", "level": "info",
	} {
		if got := refused.Text(field); got != want {
			t.Errorf("field %s is %q, want %q", field, got, want)
		}
	}
	for _, field := range []string{"request_id", "duration_ms", "bytes", "key", "time"} {
		if refused.Text(field) == "" {
			t.Errorf("the line %v lacks %s", refused, field)
		}
	}
	if n := w.log.Count("request"); n != 2 {
		t.Errorf("2 requests left %d lines", n)
	}
}

// Whoever reads the log by machine must not stumble over a line.
func TestLog_IsJSONAlsoWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	w := start(t, redisDefaultYAML(server.Addr)+smsYAML("9/1h", ""))
	w.statuses("p", 2)
	server.Kill()
	w.statuses("p", 8)
	w.get(w.Admin + "/readyz")
	w.Signal(syscall.SIGTERM)
	w.Exit()
	for text := range strings.Lines(w.log.String()) {
		if !json.Valid([]byte(text)) {
			t.Fatalf("a line of the log is not JSON: %s", text)
		}
	}
}
