# Each target makes .venv first, from python3.11 or newer (make PYTHON=python3.13 demo chooses another).

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# The releases that passed every test, so that what PyPI gets tomorrow changes no result. In a new VENV, CONSTRAINTS= takes the newest.
CONSTRAINTS ?= deploy/constraints.txt
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(CONSTRAINTS))
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
SPARK := $(VENV)/.spark-installed
DOCS := $(VENV)/.docs-installed
CONSOLE := $(VENV)/.console-installed
CELERY := $(VENV)/.celery-installed
FRAMEWORKS := build/frameworks/.installed
FLINK_KAFKA := https://repo1.maven.org/maven2/org/apache/flink/flink-sql-connector-kafka/5.0.0-2.2/flink-sql-connector-kafka-5.0.0-2.2.jar
TABLES := $(VENV)/.tables-installed
SPARK_TABLES := build/spark-tables/.installed
SPARK_TABLES_JARS := io.delta:delta-spark_4.1_2.13:4.4.0 io.delta:delta-storage:4.4.0 \
	org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 org.xerial:sqlite-jdbc:3.54.1.0
HELM := build/bin/helm
KUBERNETES_RULES := build/bin/kubernetes-rules
CONTROL_PLANE := build/bin/control-plane
GO_PROGRAMS := $(addprefix build/bin/interop-,franz-go kafka-go sarama sarama-1.43)

# Processes that run tests. Most of the long tests wait, so more than two cores' worth get two cores busy.
WORKERS ?= 3

# Without byte code each process compiles what it imports: a test run would take half as long again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test reversed celery-test frameworks-test table-test console-test console-pictures lint sim sim-scenarios planted chaos power-cut turns attack fuzz fuzz-live \
	interop interop-groups interop-go interop-java interop-spark api compose-test helm-test kubernetes-test test-spark pipeline-demo bench compare kafka-diff kafka-generated kafka-record growth slow newest constraints nightly docs wheel clean

# Three nodes, a real file, nodes killed meanwhile, everything read back. DEMO="--records 1000000 --keep" passes options.
demo: $(DEMO_STAMP)
	$(BIN)/raftlog demo $(DEMO)

# About five minutes on two cores. TEST="tests/base -k config" runs a part, TEST="-n 0 ..." in one process. A module's tests
# share a process and its cluster. A test of real nodes that fails runs again, and is reported as FLAKY if it passes then.
test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TEST)

# The same tests, reversed within each module: a test that needs what an earlier test left fails. Clusters have their
# folders on the disk, where users have them; `make test` has them in memory.
reversed: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --reversed --on-disk $(TEST)

# The console of real nodes in a headless browser: Debian's chromium, driven by playwright. axe-core (where there is npm)
# judges how accessible its screens are.
console-test: $(CONSOLE)
	@command -v chromium >/dev/null || { echo "there is no chromium here: apt-get install chromium"; exit 1; }
	if command -v npm >/dev/null; then cd tests/console/javascript && npm ci --silent --no-audit --no-fund --fetch-retries=5; fi
	$(BIN)/python -m pytest -m console tests/console $(TEST)

# Celery on share groups: the example's own tests kill a worker and a leader.
celery-test: $(CELERY)
	$(BIN)/python -m pytest -m nightly tests/testing/test_celery_example.py $(TEST)

# Programs of FastStream, Quix Streams and PyFlink: 2 GB of packages, and Java for Flink. Each is killed, and a leader.
frameworks-test: $(STAMP) $(FRAMEWORKS)
	$(BIN)/python -m pytest -m nightly tests/testing/test_framework_examples.py $(TEST)

# `raftlog table`: kills at every step, two writers, S3, and DuckDB and Polars, which read the tables. About a minute.
table-test: $(TABLES)
	$(BIN)/python -m pytest -m tables tests/tables $(TEST)

# The pictures of the documentation, made of a real cluster's console.
console-pictures: $(CONSOLE)
	$(BIN)/python -m tests.console.pictures

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests

# The same code on a simulated loop, disk and network, a world per seed. SIM="--seeds 1..5000 --keep-going" sweeps on.
sim: $(STAMP)
	$(BIN)/raftlog sim --regressions --seeds 1..300 --jobs 2 $(SIM)

# The scenarios that bring about one kind of trouble each, all of them in turn. SIM="--seeds 1..1000" tells more.
sim-scenarios: $(STAMP)
	$(BIN)/raftlog sim --scenario all --seeds 1..300 --jobs 2 $(SIM)

# Plants bugs and shows how soon the simulator finds each. PLANTED="--only ack-before-flush" hunts one.
planted: $(STAMP)
	$(BIN)/python -m tests.planted --jobs 2 --seeds 1000 $(PLANTED)

# Nine cases in seven minutes: a real cluster is hurt while stock clients use it.
# CHAOS="--suite full --minutes 60" runs others. A fault that this machine can't inject is said, and fails with CHAOS=--strict.
chaos: $(STAMP)
	$(BIN)/raftlog chaos --suite ci $(CHAOS)

# Ten power cuts of a whole cluster on ext4, xfs and btrfs, in a guest kernel (Debian's user-mode-linux, xfsprogs and
# btrfs-progs; no root). POWER_CUT="--cuts 500 --seed 7" goes on for hours, POWER_CUT="--kind compaction" aims.
power-cut: $(STAMP)
	$(BIN)/python -m raftlog_chaos.power_cut $(POWER_CUT)

# The longest turn of a node's event loop, for the largest request of each API and route: over 50 ms fails. Some minutes.
# TURNS=--sample takes seconds, TURNS="--only metadata --only /v1/health" asks some.
turns: $(STAMP)
	$(BIN)/python -m raftlog_chaos.turns $(TURNS)

# Hostile scripts against a real cluster, one after the other, while stock clients work. ATTACK="--list" lists them all,
# ATTACK="--only zstd-bombs" runs one, ATTACK="--only-ci" eight, ATTACK="--report attacks.md" writes the table to a file.
attack: $(STAMP)
	$(BIN)/raftlog attack $(ATTACK)

# Random frames, made from Kafka's schemas. FRAMES=20000000 SEED=7 goes on for long, FUZZ="--first 40" goes on where a
# run was interrupted. Frames that find something are kept with the tests, which send them again.
FRAMES ?= 200000
SEED ?= 1
fuzz: $(STAMP)
	$(BIN)/raftlog fuzz --frames $(FRAMES) --seed $(SEED) --out tests/chaos/fuzz/kept $(FUZZ)

# The same to a real cluster, while stock clients work.
fuzz-live: $(STAMP)
	$(BIN)/raftlog fuzz --live --frames $(FRAMES) --seed $(SEED) --out tests/chaos/fuzz/kept $(FUZZ)

# Every stock client library against real processes.
interop: $(STAMP)
	$(BIN)/python -m pytest -m clients $(TEST)

# Groups and transactions of stock clients, Python's and KafkaJS (where there is Node.js); what a crash does to each semantics.
interop-groups: $(STAMP)
	if command -v npm >/dev/null; then cd tests/interop/javascript && npm ci --silent --no-audit --no-fund --fetch-retries=5; fi
	$(BIN)/python -m pytest -m "interop and not java and not go" -n 2 -rs tests/interop $(TEST)

# Programs of ours on Sarama (the newest and 1.43), kafka-go and franz-go: produce, groups, transactions, admin, a killed leader.
# franz-go's own tests of share groups run as well.
interop-go: $(STAMP) $(GO_PROGRAMS) build/bin/franz-go-tests
	$(BIN)/python -m pytest -m go -n 2 -rs tests/interop $(TEST)

# The Java client and Apache Kafka's own tools; Maven fetches them and compiles the programs that use them. Confluent's
# AvroConverter is inside of another connector there (160 MB).
AVRO_CONVERTER = org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dmdep.stripVersion=true \
	-Dartifact=com.snowflake:snowflake-kafka-connector:2.5.0 -DoutputDirectory=tests/interop/java/target/converter
interop-java: $(STAMP)
	@command -v java >/dev/null && command -v mvn >/dev/null || { echo "there is no java or mvn here"; exit 1; }
	mvn --quiet --batch-mode --file tests/interop/java compile
	mvn --quiet --batch-mode $(AVRO_CONVERTER)
	$(BIN)/python -m pytest -m java -n 2 -rs tests/interop $(TEST)

# Taxi trips through three nodes and two Spark jobs while a leader dies; every count and sum is checked.
pipeline-demo: $(SPARK)
	SPARK_LOCAL_IP=127.0.0.1 $(BIN)/raftlog pipeline demo $(DEMO)

# Spark's own Kafka connector, unchanged; its jars are fetched with Maven.
interop-spark: $(SPARK)
	$(BIN)/raftlog pipeline jars
	SPARK_LOCAL_IP=127.0.0.1 $(BIN)/python -m pytest -m spark_kafka tests/interop_spark $(TEST)

# Thousands of requests made from /openapi.json, right ones and wrong ones, sent to a real cluster. API="--seed 2".
api: $(STAMP)
	$(BIN)/python -m tests.admin.fuzz $(API)

# The cluster of docker-compose.yml on a real engine (one is started where none runs): clients, rolling restart, chaos.
compose-test: $(STAMP)
	BIN=$(BIN) bash deploy/ci/compose-ci.sh deploy/ci/compose-tests.sh

# The Helm chart: rendered, held against Kubernetes' own validation, and run as node processes. Go builds both programs.
helm-test: $(STAMP) $(HELM) $(KUBERNETES_RULES)
	$(BIN)/python -m pytest -n 0 -rs tests/deploy $(TEST)

# The chart in a Kubernetes without containers: its own API server, controllers and scheduler, and nodes as processes in
# namespaces. Needs root, `ip` and `nft`. Go builds the control plane, in half an hour the first time.
kubernetes-test: $(STAMP) $(HELM) $(CONTROL_PLANE)
	$(BIN)/python -m pytest -n 0 -rs -m nightly tests/deploy $(TEST)

# format("raftlog") and the jobs: killed leaders, drivers and executors, tables, a standalone Spark master. Needs Java.
test-spark: $(SPARK) $(TABLES) $(SPARK_TABLES)
	SPARK_LOCAL_IP=127.0.0.1 $(BIN)/python -m pytest -m spark --timeout 900 tests/pipeline tests/docs $(TEST)

# How work grows with partitions, brokers and groups, counted in steps and bytes: no clock, so any machine will do.
# GROWTH=--large goes up to 100,000 partitions, 100 brokers and 10,000 groups, in ten minutes.
growth: $(STAMP)
	$(BIN)/python -m raftlog_chaos.growth $(GROWTH)

bench: $(STAMP)
	$(BIN)/raftlog bench $(BENCH)

# raftlog beside Apache Kafka, NATS JetStream, Redis Streams and a C program of the same bytes, in less than half an hour.
# What isn't installed is reported as missing. COMPARE="--only produce,latency --systems raftlog,kafka" runs some of it.
compare: $(STAMP)
	$(BIN)/raftlog compare $(COMPARE)

# The same questions to Apache Kafka 4.3 and to raftlog: differences that are not listed fail. Java and Maven are needed.
# KAFKA_DIFF="--only produce --strict" compares some.
kafka-diff: $(STAMP)
	$(BIN)/python -m raftlog_chaos.conformance diff $(KAFKA_DIFF)

# Histories that are drawn by chance, on both: GENERATED="--seed 7 --count 5000 --seconds 1200 --jobs 6".
kafka-generated: $(STAMP)
	$(BIN)/python -m raftlog_chaos.conformance generated $(GENERATED)

# Writes down what Kafka answers, for tests without Java. KAFKA_DIFF="--only produce" asks some again.
kafka-record: $(STAMP)
	$(BIN)/python -m raftlog_chaos.conformance record $(KAFKA_DIFF)

# The demo and a sample of the tests on a machine that is slow: beside two loops on one core, and on a tenth of a core.
slow: $(STAMP)
	$(BIN)/python -m tests.slow_machine $(SLOW)

# With the newest release of every package, which is what pip gives users. `make constraints` then writes them down.
newest:
	rm -rf build/newest
	$(MAKE) VENV=build/newest CONSTRAINTS= lint test

constraints:
	build/newest/bin/python -m pip install --quiet --editable '.[demo,oauth,spark,table,tls]' --group dev --group docs --group celery-tests --group console-tests --group table-tests
	{ echo '# Written by make constraints.'; build/newest/bin/python -m pip freeze --exclude-editable; } >build/constraints
	mv build/constraints deploy/constraints.txt

# Everything, one part after the other, for hours; a table at the end. PARTS="demo slow" runs some of it, PARTS=--rest what has
# not passed on this commit. PARTS=--summary only prints the table.
nightly: $(STAMP)
	$(if $(filter --summary,$(PARTS)),,-deploy/ci/packages.sh)
	$(if $(filter --summary,$(PARTS)),,-$(PIP) uv)  # tests/cli/test_uvx.py runs a wheel by it
	$(BIN)/python -m tests.nightly $(PARTS)

# The site in build/docs, for a browser without a network: open build/docs/index.html. A dead link or unknown anchor fails.
docs: $(DOCS)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/mkdocs.yml

# What users install: built, put into a clean environment, and tried there.
wheel: $(STAMP)
	PYTHON=$(abspath $(BIN))/python bash deploy/ci/wheel-check.sh

# An editable install: only a change of pyproject.toml or of the constraints makes it again. pip compiles what it
# copies, which is not us.
define install
	@test -n "$(PYTHON)" || { echo "raftlog needs Python 3.11 or newer"; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "Installing raftlog and its $(1) into $(VENV), which takes a minute the first time."
	@$(PIP) 'pip>=25.1'  # which knows dependency groups
	@$(PIP) --editable $(2)
	@$(BIN)/python -m compileall -q raftlog chaos pyspark_raftlog
	@touch $@
endef

$(STAMP): pyproject.toml $(CONSTRAINTS)
	$(call install,tests,. --group dev)

# What is installed for the tests is enough for the demo.
$(DEMO_STAMP): pyproject.toml $(CONSTRAINTS)
	$(if $(shell test $(STAMP) -nt pyproject.toml $(foreach each,$(CONSTRAINTS),-a $(STAMP) -nt $(each)) && echo ready),@touch $@,$(call install,demo,'.[demo]'))

$(HELM):
	@command -v go >/dev/null || { echo "helm is built with Go, and there is no go here"; exit 1; }
	GOBIN=$(abspath build/bin) go install helm.sh/helm/v3/cmd/helm@v3.22.0

# One source for both versions of Sarama: -modfile chooses.
$(GO_PROGRAMS): build/bin/interop-%: $(wildcard tests/interop/go/*.mod tests/interop/go/*/*.go)
	@command -v go >/dev/null || { echo "there is no go here"; exit 1; }
	cd tests/interop/go && go build $(if $(filter sarama-1.43,$*),-modfile=sarama-1.43.mod) -o $(abspath $@) ./$(subst -,,$(subst -1.43,,$*))

build/bin/franz-go-tests: tests/interop/go/go.mod
	cd tests/interop/go && go test -c -o $(abspath $@) github.com/twmb/franz-go/pkg/kgo

$(KUBERNETES_RULES): $(wildcard tests/deploy/kubernetes/*)
	cd tests/deploy/kubernetes && go build -o $(abspath $@) .

# -X gives the API server the version that it reports.
$(CONTROL_PLANE): $(wildcard tests/deploy/control-plane/*)
	@command -v go >/dev/null || { echo "Kubernetes is built with Go, and there is no go here"; exit 1; }
	cd tests/deploy/control-plane && go build -o $(abspath $@) -ldflags "-s -w $(foreach each,gitVersion=v1.34.4 \
		gitMajor=1 gitMinor=34,-X k8s.io/component-base/version.$(each))" .

# PySpark is half a gigabyte: only the targets that need it install it.
$(SPARK): $(STAMP)
	@command -v java >/dev/null || { echo "Spark needs a Java runtime, 17 or newer, and there is no java here"; exit 1; }
	$(PIP) --editable '.[spark]' --group dev
	@touch $(SPARK)

$(CONSOLE): $(STAMP)
	$(PIP) --editable . --group dev --group console-tests
	@touch $(CONSOLE)

$(CELERY): $(STAMP)
	$(PIP) --editable . --group dev --group celery-tests
	@touch $(CELERY)

# Environments of their own, since these packages want other versions than the tests.
$(FRAMEWORKS): Makefile
	rm -rf build/frameworks
	"$(PYTHON)" -m venv build/frameworks/python
	build/frameworks/python/bin/python -m pip install --quiet --editable . confluent-kafka 'faststream[kafka]==0.7.8' quixstreams==3.28.1 pytest
	"$(PYTHON)" -m venv build/frameworks/flink
	build/frameworks/flink/bin/python -m pip install --quiet --editable . apache-flink==2.3.0 confluent-kafka pytest
	curl -fsSL -o build/frameworks/flink-sql-connector-kafka.jar $(FLINK_KAFKA)
	@touch $@

# Libraries of 400 MB: only the target that needs them installs them.
$(TABLES): $(STAMP)
	$(PIP) --editable '.[table]' --group dev --group table-tests
	@touch $(TABLES)

# The newest Spark for which there are jars of both Delta and Iceberg.
$(SPARK_TABLES): Makefile
	@command -v java mvn >/dev/null || { echo "there is no java or mvn here"; exit 1; }
	rm -rf build/spark-tables
	"$(PYTHON)" -m venv build/spark-tables
	build/spark-tables/bin/python -m pip install --quiet pyspark==4.1.4
	for each in $(SPARK_TABLES_JARS); do mvn --quiet --batch-mode -Dartifact=$$each -DoutputDirectory=build/spark-tables/jars \
		org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy || exit 1; done
	@touch $@

# Without the tests' plugins of pytest, which would change what a reader's own pytest prints.
$(DOCS): pyproject.toml $(CONSTRAINTS)
	$(call install,documentation,'.[demo]' --group docs)

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
