package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const top = "../../.."

// newStage is a folder as the build stage leaves it.
func newStage(t *testing.T, weir string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"state", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, "out", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../usr/bin/weir", filepath.Join(dir, "out", "bin", "ratelimit")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"out/weir": weir, "out/doc/LICENSE": "licence", "out/doc/LICENSES": "licences", "out/doc/weir.cdx.json": "{}", "etc/ssl/certs/ca-certificates.crt": "pem",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if name == "out/weir" {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newOptions(t *testing.T) options {
	t.Helper()
	return options{top: top, out: filepath.Join(t.TempDir(), "image"), args: map[string]string{"VERSION": "v1.2.3", "REVISION": "0123abc", "DATE": "2026-01-02T03:04:05Z"}}
}

// The same files give the same digest, and others another one.
func TestImage_IsTheSameTwice(t *testing.T) {
	var digests []string
	for _, weir := range []string{"binary", "binary", "other"} {
		digest, err := newOptions(t).write([]string{"linux/amd64=" + newStage(t, weir), "linux/arm64=" + newStage(t, weir)})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] || digests[0] == digests[2] {
		t.Errorf("the digests are %v; want that the first two are the same", digests)
	}
}

// The image is what the last stage of the Dockerfile says.
func TestImage_FollowsTheDockerfile(t *testing.T) {
	o := newOptions(t)
	digest, err := o.write([]string{"linux/amd64=" + newStage(t, "binary"), "linux/arm64=" + newStage(t, "binary")})
	if err != nil {
		t.Fatal(err)
	}
	written, err := layout.ImageIndexFromPath(o.out)
	if err != nil {
		t.Fatal(err)
	}
	index, err := written.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 || manifest.Manifests[1].Platform.Architecture != "arm64" {
		t.Fatalf("%+v (%v); want an image for each platform", manifest, err)
	}
	image, err := index.Image(manifest.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if file.Architecture != "arm64" || file.OS != "linux" || c.User != "65532:65532" || c.WorkingDir != "/etc/weir" ||
		!reflect.DeepEqual(c.Entrypoint, []string{"/usr/bin/weir"}) || !reflect.DeepEqual(c.Healthcheck.Test, []string{"CMD", "/usr/bin/weir", "healthcheck"}) ||
		c.Labels["org.opencontainers.image.version"] != "v1.2.3" || c.Labels["org.opencontainers.image.title"] != "Weir" || c.Labels["org.opencontainers.image.created"] != "2026-01-02T03:04:05Z" {
		t.Errorf("%+v", file)
	}
	files := map[string]string{}
	extracted := mutate.Extract(image)
	defer extracted.Close()
	r := tar.NewReader(extracted)
	for h, err := r.Next(); err != io.EOF; h, err = r.Next() {
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = strings.TrimSpace(fmt.Sprintf("%o %d:%d %s", h.Mode, h.Uid, h.Gid, h.Linkname))
	}
	for name, want := range map[string]string{
		"usr/bin/weir": "755 0:0", "var/lib/weir": "755 65532:65532", "usr/share/doc/weir/weir.cdx.json": "644 0:0",
		"usr/share/doc/weir/LICENSES": "644 0:0", "etc/ssl/certs/ca-certificates.crt": "644 0:0", "etc/weir/config.example.yaml": "644 0:0",
		"bin/ratelimit": "777 0:0 ../usr/bin/weir",
	} {
		if got := files[strings.TrimSuffix(name, "/")]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(files) != 20 {
		t.Errorf("%d files and folders: %v", len(files), files)
	}
}

func TestImage_UnknownInstructions(t *testing.T) {
	for dockerfile, want := range map[string]string{
		"FROM scratch\nRUN true\n":                   "RUN: unknown instruction",
		"FROM scratch\nFROM debian\n":                "FROM: debian: only an image from scratch can be made",
		"FROM scratch\nCOPY --chmod=1 a b\n":         "COPY: unknown option --chmod",
		"FROM scratch\nCOPY --from=build /none /b\n": "no such file",
	} {
		s := stage{roots: map[string]string{"build": t.TempDir()}, files: map[string]file{}}
		if err := s.run(dockerfile); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", dockerfile, err, want)
		}
	}
}
