package proxy

import (
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
)

// A rewrite changes forwarded requests and their responses. It is immutable.
type rewrite struct {
	*config.Rewrite
	set map[string][]string // request fields to set; a field without values is removed; nil if there are none
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

// path returns the path of the forwarded request. A prefix is stripped only at the end of a
// segment.
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

// response changes the header of the upstream's response.
func (r *rewrite) response(h *http1.Fields) {
	if len(r.Response.Remove)+len(r.Response.Set) > 0 {
		r.editResponse(h)
	}
}

func (r *rewrite) editResponse(h *http1.Fields) {
	for _, name := range r.Response.Remove {
		h.Del(name)
	}
	for name, value := range r.Response.Set {
		h.Set(name, value)
	}
}
