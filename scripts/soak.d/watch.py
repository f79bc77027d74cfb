"""A real Prometheus beside `scripts/soak`: scrapes, rules, alerts, and the dashboard's queries."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

from rig import free_port, start, until

EVERY = 5
# How long after the end of its fault an alert may begin to fire: most look back five minutes and wait for another five.
LATEST = 720
# Panels that need more than the faults here: a panic.
EMPTY = ["Background tasks begun anew"]


class Prometheus:
    """Scrapes every replica, with the alert rules as they are."""

    def __init__(self, place, rules):
        targets = [service.ports["admin"] for service in (*place.services, place.spare)]
        self.spare, self.begun = place.spare.ports["admin"], time.time()
        with open(f"{place.folder}/prometheus.yml", "w") as out:
            json.dump({"global": {"scrape_interval": f"{EVERY}s", "evaluation_interval": f"{EVERY}s"}, "rule_files": [str(rules)],
                       "scrape_configs": [{"job_name": "tiergate", "static_configs": [{"targets": targets}]}]}, out)
        self.where = f"127.0.0.1:{free_port()}"
        start(f"{place.folder}/prometheus.log", "prometheus", f"--config.file={place.folder}/prometheus.yml",
              f"--storage.tsdb.path={place.folder}/prometheus", f"--web.listen-address={self.where}")
        until("Prometheus has loaded the rules", lambda: self.ask("rules")["groups"])

    def ask(self, path, **fields):
        try:
            with urllib.request.urlopen(f"http://{self.where}/api/v1/{path}?{urllib.parse.urlencode(fields)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # It starts.
                raise
            raise SystemExit(f"{fields}: {error.read().decode()}") from error

    def range(self, query):
        """All series of the whole run."""
        now = time.time()
        step = max(EVERY, (now - self.begun) / 1_000)
        return self.ask("query_range", query=query, start=self.begun, end=now, step=step)["result"]

    def judge(self, queries, faults):
        """Returns what is wrong with scrapes, rules, the dashboard, and the alerts that these faults have to raise."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        problems = [f"rule {rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]
        for series in self.range(f'up{{instance!="{self.spare}"}} == 0'):
            problems.append(f"scrapes of {series['metric']['instance']} failed {len(series['values'])} times")
        slowest = self.range("max(scrape_duration_seconds)")[0]["values"]
        print(f"{len(rules)} rules; the slowest scrape took {max(float(value) for _, value in slowest):.3f} s; {len(queries)} queries of the dashboard")
        problems += [f"no data for the dashboard's {title}: {query}" for title, query in queries if title not in EMPTY and not self.range(query)]
        offset, fired = time.time() - time.monotonic(), {}
        for series in self.range('ALERTS{alertstate="firing"}'):
            times = [moment - offset for moment, _ in series["values"]]
            fired.setdefault(series["metric"]["alertname"], []).extend(times)
        for name, times in sorted(fired.items()):
            print(f"{name} fired from {(min(times) - self.begun + offset) / 60:.1f} min on, for {len(times)} samples")
        for fault in faults:
            for alert in fault.alerts:
                if not any(fault.begun <= moment <= fault.ended + LATEST for moment in fired.get(alert, [])):
                    problems.append(f"{alert} did not fire when {fault.name}")
        return problems


def dashboard(path):
    """Title and query of every panel, with the variables filled in."""
    with open(path) as file:
        panels = json.load(file)["panels"]
    panels += [inner for panel in panels for inner in panel.get("panels", [])]
    filled = lambda query: query.replace("$__rate_interval", "1m").replace("$tenant", ".*")
    return [(panel["title"], filled(target["expr"])) for panel in panels for target in panel.get("targets", [])]
