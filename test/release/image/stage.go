package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A stage is the last stage of a Dockerfile, as far as it has been run.
type stage struct {
	roots   map[string]string // folders to copy from, by the name of a stage; "" is the context
	args    map[string]string
	created time.Time
	config  v1.Config
	files   map[string]file // by their path without the first slash
}

// A file is a file or folder of the image.
type file struct {
	content []byte
	mode    fs.FileMode
	uid     int
	link    string // what a symbolic link names
}

// run runs the last stage of a Dockerfile. It knows the instructions that Weir's has.
func (s *stage) run(dockerfile string) error {
	lines := strings.Split(strings.ReplaceAll(dockerfile, "\\\n", " "), "\n")
	last := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "FROM ") {
			last = i
		}
	}
	for _, line := range lines[last:] {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		if err := s.instruct(word, strings.TrimSpace(rest)); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func (s *stage) instruct(word, rest string) error {
	switch word {
	case "ARG":
	case "FROM":
		if rest != "scratch" {
			return fmt.Errorf("%s: only an image from scratch can be made", rest)
		}
	case "LABEL":
		s.config.Labels = map[string]string{}
		for _, m := range regexp.MustCompile(`(\S+?)=("[^"]*"|\S+)`).FindAllStringSubmatch(rest, -1) {
			s.config.Labels[m[1]] = os.Expand(strings.Trim(m[2], `"`), func(name string) string { return s.args[name] })
		}
	case "COPY":
		return s.copy(strings.Fields(rest))
	case "WORKDIR":
		s.config.WorkingDir = rest
	case "USER":
		s.config.User = rest
	case "VOLUME":
		s.config.Volumes = map[string]struct{}{rest: {}}
	case "EXPOSE":
		s.config.ExposedPorts = map[string]struct{}{rest + "/tcp": {}}
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &s.config.Entrypoint)
	case "HEALTHCHECK":
		return s.healthcheck(rest)
	default:
		return fmt.Errorf("unknown instruction")
	}
	return nil
}

func (s *stage) healthcheck(rest string) error {
	options, command, _ := strings.Cut(rest, "CMD ")
	check := &v1.HealthConfig{Test: []string{"CMD"}}
	for _, option := range strings.Fields(options) {
		name, value, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
		into := map[string]*time.Duration{"interval": &check.Interval, "timeout": &check.Timeout, "start-period": &check.StartPeriod}[name]
		if into == nil {
			return fmt.Errorf("unknown option %s", name)
		}
		var err error
		if *into, err = time.ParseDuration(value); err != nil {
			return err
		}
	}
	var words []string
	if err := json.Unmarshal([]byte(command), &words); err != nil {
		return err
	}
	check.Test = append(check.Test, words...)
	s.config.Healthcheck = check
	return nil
}

// copy copies a file or the content of a folder.
func (s *stage) copy(words []string) error {
	from, uid := "", 0
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		name, value, _ := strings.Cut(words[0], "=")
		switch name {
		case "--from":
			from = value
		case "--chown":
			if _, err := fmt.Sscanf(value, "%d", &uid); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown option %s", name)
		}
		words = words[1:]
	}
	if len(words) != 2 {
		return fmt.Errorf("want a source and a destination")
	}
	source, target := filepath.Join(s.roots[from], words[0]), words[1]
	return filepath.WalkDir(source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(source, name)
		to := path.Join(target, filepath.ToSlash(below))
		if !d.IsDir() && strings.HasSuffix(target, "/") {
			to = path.Join(target, d.Name())
		}
		f := file{mode: 0o755 | fs.ModeDir, uid: uid}
		if d.Type() == fs.ModeSymlink {
			f.mode = 0o777 | fs.ModeSymlink
			if f.link, err = os.Readlink(name); err != nil {
				return err
			}
		} else if !d.IsDir() {
			if f.content, err = os.ReadFile(name); err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			f.mode = 0o644 | info.Mode()&0o111
		}
		s.add(to, f)
		return nil
	})
}

// add adds a file, and the folders above it.
func (s *stage) add(name string, f file) {
	for above := path.Dir(name); above != "/"; above = path.Dir(above) {
		if _, known := s.files[above[1:]]; !known {
			s.files[above[1:]] = file{mode: 0o755 | fs.ModeDir}
		}
	}
	s.files[name[1:]] = f
}

// layer returns all files as a layer, in the order of their names.
func (s *stage) layer() (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(f.mode.Perm()), Uid: f.uid, Gid: f.uid, Size: int64(len(f.content)), ModTime: s.created, Format: tar.FormatUSTAR}
		switch f.mode.Type() {
		case fs.ModeDir:
			h.Name, h.Typeflag = name+"/", tar.TypeDir
		case fs.ModeSymlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
