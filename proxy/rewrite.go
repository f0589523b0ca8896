package proxy

import (
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
)

// A rewrite is what the upstream and the client see otherwise than it was sent.
// It is immutable.
type rewrite struct {
	strip, add   string              // whole segments
	host         string              // "" for that of the request
	set          map[string][]string // what is removed has no values; nil for nothing
	answerSet    map[string]string
	answerRemove []string
}

func newRewrite(c config.Rewrite) rewrite {
	r := rewrite{
		strip: c.StripPrefix, add: c.AddPrefix, host: c.Host,
		answerSet: c.Response.Set, answerRemove: c.Response.Remove,
	}
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
	if path == "*" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, r.strip); ok && (rest == "" || rest[0] == '/') {
		path = rest
	}
	if path == "" && r.add == "" {
		return "/"
	}
	return r.add + path
}

// answer changes the header of the upstream's answer.
func (r *rewrite) answer(h *http1.Fields) {
	for _, name := range r.answerRemove {
		h.Del(name)
	}
	for name, value := range r.answerSet {
		h.Set(name, value)
	}
}
