package proxy

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
)

// immutable returns an error that wraps ErrRestart and lists the sections that differ between two
// configurations and cannot be changed by a reload.
func immutable(was, is *config.Config) error {
	var sections []string
	for _, s := range []struct {
		name string
		same bool
	}{
		{"listen", reflect.DeepEqual(was.Listen, is.Listen)},
		{"admin", reflect.DeepEqual(was.Admin, is.Admin)},
		{"store", was.Store == is.Store},
		{"redis", was.Redis.Equal(is.Redis)},
		{"reload", was.Reload == is.Reload},
		{"traces.endpoint, headers or service", sameCollector(was.Traces, is.Traces)},
		{"access_log.file", was.AccessLog.File == is.AccessLog.File},
	} {
		if !s.same {
			sections = append(sections, s.name)
		}
	}
	if len(sections) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s changed; restart weir, or undo that change", ErrRestart, strings.Join(sections, ", "))
}

// sameCollector reports whether traces are sent to the same collector under the same service name.
func sameCollector(was, is config.Traces) bool {
	return was.Endpoint == is.Endpoint && was.Service == is.Service && maps.Equal(was.Headers, is.Headers)
}
