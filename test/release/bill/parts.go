package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// A part is a component of others: a module, the standard library, or a script of the
// dashboard.
type part struct {
	name, version string
	purl          string // package URL
	sum           string // "h1:..." of go.sum; "" for none
	files         []licenseFile
	ids           []string // SPDX identifiers of the licences
}

type licenseFile struct{ name, text string }

// partsOf returns the parts of a binary, in the order of their names.
func partsOf(info *debug.BuildInfo, top string) ([]part, error) {
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	parts, err := scripts(top)
	if err != nil {
		return nil, err
	}
	std, err := standardLibrary(info.GoVersion)
	if err != nil {
		return nil, err
	}
	parts = append(parts, std)
	for _, m := range info.Deps {
		p, err := modulePart(m, cache)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	for i := range parts {
		if err := parts[i].identify(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return parts, nil
}

func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out)), err
}

// modulePart returns a module, which the build left in the module cache.
func modulePart(m *debug.Module, cache string) (part, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	name, err := module.EscapePath(m.Path)
	if err != nil {
		return part{}, err
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return part{}, err
	}
	files, err := licenseFiles(filepath.Join(cache, name+"@"+version))
	if err != nil {
		return part{}, fmt.Errorf("read the licences of %s: %w; run go mod download first", m.Path, err)
	}
	return part{name: m.Path, version: m.Version, purl: "pkg:golang/" + m.Path + "@" + m.Version, sum: m.Sum, files: files}, nil
}

// standardLibrary returns the standard library and the runtime of Go.
func standardLibrary(version string) (part, error) {
	root, err := goEnv("GOROOT")
	if err != nil {
		return part{}, err
	}
	// With a toolchain that the go command fetched, and in Debian, the file is there too.
	text, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return part{}, err
	}
	version = strings.TrimPrefix(version, "go")
	return part{name: "std", version: version, purl: "pkg:golang/std@" + version, files: []licenseFile{{"LICENSE", string(text)}}}, nil
}

// licenseFiles reads the licences of a module and of what it took from others, which
// stand beside that.
func licenseFiles(dir string) (files []licenseFile, err error) {
	name := regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|unlicense)([-_.](txt|md|[a-z0-9-]+))?$`)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) == ".go" || !name.MatchString(d.Name()) {
			return nil
		}
		text, err := os.ReadFile(path)
		relative, _ := filepath.Rel(dir, path) // both begin with dir
		files = append(files, licenseFile{filepath.ToSlash(relative), string(text)})
		return err
	})
	return files, err
}

// scripts returns the scripts of others in the repository: NAME.LICENSE stands beside
// NAME-VERSION.min.js.
func scripts(top string) (parts []part, err error) {
	licenses, err := filepath.Glob(filepath.Join(top, "proxy/admin/dashboard/static/*.LICENSE"))
	if err != nil {
		return nil, err
	}
	for _, path := range licenses {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".LICENSE")
		files, err := filepath.Glob(strings.TrimSuffix(path, ".LICENSE") + "-*.js")
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("%s is of %d scripts (%v), want 1", path, len(files), err)
		}
		version := regexp.MustCompile(`-(\d+\.\d+\.\d+)\.`).FindStringSubmatch(filepath.Base(files[0]))
		if version == nil {
			return nil, fmt.Errorf("%s has no version in its name", files[0])
		}
		id := strings.ToLower(name)
		if id == "htmx" {
			id = "htmx.org"
		}
		parts = append(parts, part{name: name, version: version[1], purl: "pkg:npm/" + id + "@" + version[1], files: []licenseFile{{filepath.Base(path), string(text)}}})
	}
	return parts, nil
}

// identify finds out which licences the files of p are.
func (p *part) identify() error {
	for _, f := range p.files {
		p.ids = append(p.ids, licenseIDs(f.text)...)
	}
	slices.Sort(p.ids)
	if p.ids = slices.Compact(p.ids); len(p.ids) == 0 {
		return fmt.Errorf("%s %s has no licence that is known here, in %d files", p.name, p.version, len(p.files))
	}
	return nil
}

// licenseIDs returns the SPDX identifiers of the licences in a text, by a sentence that
// only they have.
func licenseIDs(text string) (ids []string) {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	has := func(sentence string) bool { return strings.Contains(text, sentence) }
	if has("apache license version 2.0") || has("apache license, version 2.0") {
		ids = append(ids, "Apache-2.0")
	}
	if has("mozilla public license version 2.0") || has("mozilla public license, version 2.0") {
		ids = append(ids, "MPL-2.0")
	}
	if has("permission is hereby granted, free of charge, to any person obtaining a copy") {
		ids = append(ids, "MIT")
	}
	if has("permission to use, copy, modify, and/or distribute this software for any purpose") || has("permission to use, copy, modify, and distribute this software for any purpose") {
		ids = append(ids, "ISC")
	}
	if has("permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.") {
		ids = append(ids, "0BSD")
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == "ISC" })
	}
	if has("redistribution and use in source and binary forms") {
		if has("neither the name") || has("names of its contributors may") {
			ids = append(ids, "BSD-3-Clause")
		} else {
			ids = append(ids, "BSD-2-Clause")
		}
	}
	if has("this is free and unencumbered software released into the public domain") {
		ids = append(ids, "Unlicense")
	}
	if has("cc0 1.0 universal") {
		ids = append(ids, "CC0-1.0")
	}
	return ids
}
