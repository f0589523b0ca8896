package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// weir builds the binary as a release does, but for what the linker is told.
func weir(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "weir")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, ".")
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// inside are the modules and their versions that go version -m finds in a binary.
func inside(t *testing.T, binary string) (all []string) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllSubmatch(out, -1) {
		all = append(all, string(m[1])+"@"+string(m[2]))
	}
	std := regexp.MustCompile(`: go(\S+)\n`).FindSubmatch(out)
	if len(all) < 30 || std == nil {
		t.Fatalf("go version -m says %s", out)
	}
	return append(all, "std@"+string(std[1]))
}

// The bill names what go version -m finds, and the scripts of the dashboard; each with its
// licence, whose text is there. Written again, it is the same.
func TestBill_NamesAllThatIsInside(t *testing.T) {
	binary, dir := weir(t), t.TempDir()
	to := outputs{sbom: filepath.Join(dir, "sbom"), licenses: filepath.Join(dir, "licenses")}
	var sboms [][]byte
	for range 2 {
		if err := write(binary, "v1.2.3", "../../..", to); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(to.sbom)
		if err != nil {
			t.Fatal(err)
		}
		sboms = append(sboms, text)
	}
	if !bytes.Equal(sboms[0], sboms[1]) {
		t.Error("two bills of one binary differ")
	}
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Component struct{ Version, PURL string }
		}
		Components []struct {
			Name, Version, PURL string
			Licenses            []map[string]any
		}
		Dependencies []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(sboms[0], &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.6" || bom.Metadata.Component.PURL != "pkg:golang/github.com/weir-proxy/weir@v1.2.3" {
		t.Errorf("the bill is %s %s of %+v", bom.BOMFormat, bom.SpecVersion, bom.Metadata.Component)
	}
	texts, err := os.ReadFile(to.licenses)
	if err != nil {
		t.Fatal(err)
	}
	var billed []string
	for _, c := range bom.Components {
		if len(c.Licenses) != 1 || !slices.Contains(bom.Dependencies[0].DependsOn, c.PURL) {
			t.Errorf("%s has the licences %v, and is among the dependencies: %v", c.Name, c.Licenses, bom.Dependencies)
		}
		if !strings.Contains(string(texts), "\n"+c.Name+" "+c.Version+": ") || !strings.Contains(string(texts), "\n"+c.Name+" (") {
			t.Errorf("the licence of %s is missing", c.Name)
		}
		if !strings.HasPrefix(c.PURL, "pkg:npm/") {
			billed = append(billed, c.Name+"@"+c.Version)
		}
	}
	want := inside(t, binary)
	slices.Sort(want)
	slices.Sort(billed)
	if !slices.Equal(billed, want) {
		t.Errorf("the bill names\n%v\nin the binary are\n%v", billed, want)
	}
	scripts, err := filepath.Glob("../../../proxy/admin/dashboard/static/*.min.js")
	if err != nil || len(bom.Components)-len(billed) != len(scripts) {
		t.Errorf("the bill names %d scripts, the dashboard has %v (%v)", len(bom.Components)-len(billed), scripts, err)
	}
}

func TestBill_KnowsLicences(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                                                                     "Apache-2.0",
		"Permission is hereby granted, free of charge, to any person\nobtaining a copy":                                                    "MIT",
		"Redistribution and use in source and binary forms ... Neither the name of":                                                        "BSD-3-Clause",
		"Redistribution and use in source and binary forms, with or without modification":                                                  "BSD-2-Clause",
		"Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided": "ISC",
		"Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.":          "0BSD",
		"Mozilla Public License Version 2.0":                                                                                               "MPL-2.0",
		"All rights reserved. You may not look at it.":                                                                                     "",
	} {
		if got := strings.Join(licenseIDs(text), " "); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	unknown := part{name: "a", files: []licenseFile{{"LICENSE", "Ask me."}}}
	if err := unknown.identify(); err == nil {
		t.Error("a licence that nobody knows is accepted")
	}
}
