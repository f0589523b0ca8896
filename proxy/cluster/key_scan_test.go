package cluster

import (
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

func TestParseCounted(t *testing.T) {
	key := limiter.KeyOf("p")
	for text, limit := range map[string]string{
		"{" + key.String() + "}:a.l:1h:value":              "a.l:1h",
		"{" + key.String() + "}:a.l:1h:fixed_window:value": "a.l:1h",
		"{" + key.String() + "}:a.l:held:concurrent:base":  "a.l:held",
		"{" + key.String() + "}:a.l:1h:{distinct}:permits": "a.l:1h",
		"{" + key.String() + "}:a.l{7}":                    "a.l{",
		"{" + key.String() + "}:a.l:odd{c}:client":         "a.l:odd{",
		"{" + key.String() + "}:a.l{n}":                    "",
		"{" + strings.Repeat("x", 32) + "}:a.l:1h:value":   "",
		"{" + key.String()[:30] + "}:a.l:1h:value":         "",
		"{cluster}:config":                                 "",
		"nonsense":                                         "",
	} {
		c, ok := parseCounted(text)
		if ok != (limit != "") || ok && (c.Limit != limit || c.Key != key) {
			t.Errorf("%s is %+v, %v; want %q", text, c, ok, limit)
		}
	}
}
