package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

// static/ holds scripts and styles: our own, and htmx and uPlot as published on npm, with their
// licenses.
//
//go:embed static
var staticFiles embed.FS

// A static serves embedded files by name.
type static map[string]staticFile

type staticFile struct {
	content []byte
	etag    string
}

func readStatic() static {
	s := static{}
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // embedded files can be read
	}
	for _, e := range entries {
		content, err := staticFiles.ReadFile(path.Join("static", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		s[e.Name()] = staticFile{content, `W/"` + hex.EncodeToString(sum[:8]) + `"`} // weak: it may be compressed
	}
	return s
}

// ServeHTTP serves a file without authentication, because the login page needs them. Browsers
// revalidate it on each use, so that an upgrade is visible at once.
func (s static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, found := s[path.Base(r.URL.Path)]
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.etag)
	http.ServeContent(w, r, path.Base(r.URL.Path), time.Time{}, bytes.NewReader(f.content))
}
