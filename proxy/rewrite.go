package proxy

import (
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
)

// A rewrite is what the upstream and the client see otherwise than it was sent.
// It is immutable.
type rewrite struct {
	*config.Rewrite
	set map[string][]string // of the request; what is removed has no values; nil for nothing
}

func newRewrite(c *config.Rewrite) rewrite {
	r := rewrite{Rewrite: c}
	if len(c.Request.Set)+len(c.Request.Remove) > 0 {
		r.set = map[string][]string{}
	}
	for name, value := range c.Request.Set {
		r.set[name] = []string{value}
	}
	for _, name := range c.Request.Remove {
		r.set[name] = []string{}
	}
	return r
}

// path is the path that the upstream is asked for. A prefix is stripped only
// where a segment ends with it.
func (r *rewrite) path(path string) string {
	if path == "*" || r.StripPrefix == "" && r.AddPrefix == "" && path != "" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, r.StripPrefix); ok && (rest == "" || rest[0] == '/') {
		path = rest
	}
	if path == "" && r.AddPrefix == "" {
		return "/"
	}
	return r.AddPrefix + path
}

// answer changes the header of the upstream's response.
func (r *rewrite) answer(h *http1.Fields) {
	for _, name := range r.Response.Remove {
		h.Del(name)
	}
	if len(r.Response.Set) > 0 { // to begin with an empty map is not for nothing
		for name, value := range r.Response.Set {
			h.Set(name, value)
		}
	}
}
