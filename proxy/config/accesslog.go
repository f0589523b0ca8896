package config

import (
	"slices"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A LogFormat is a format of the access log.
type LogFormat string

// The formats.
const (
	LogJSON     LogFormat = "json"
	LogCombined LogFormat = "combined" // NCSA combined format, as in Apache and nginx
	LogNone     LogFormat = "none"
)

// AccessLog configures the access log.
type AccessLog struct {
	Format LogFormat
	File   string   // path; empty: the process log
	Fields []string // of a JSON line; "standard" stands for the standard ones; never empty
	Sample int      // one in Sample of the successful requests is logged; at least 1
}

// accessLog compiles the access log.
func (r *loader) accessLog(f *accessLogForm) AccessLog {
	a := AccessLog{Format: LogFormat(f.Format), File: r.writes(&f.File), Fields: f.Fields, Sample: f.Sample}
	if len(a.Fields) == 0 {
		a.Fields = []string{"standard"}
	}
	for i, name := range f.Fields {
		if slices.Contains(f.Fields[:i], name) {
			r.Wrong(&f.Fields[i], form.Quote(name)+" is given twice", "keep one")
		}
	}
	if !r.Valid(&f.Format) {
		return a
	}
	if a.Format != LogJSON && len(f.Fields) > 0 {
		r.Wrong(&f.Fields, "only lines of JSON have fields to choose", "write format: json, or leave it out")
	}
	if a.Format == LogNone && f.File != "" {
		r.Wrong(&f.File, "nothing is written to it", "write format: json, or leave it out")
	}
	return a
}
