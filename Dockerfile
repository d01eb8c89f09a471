# scaseg serve in a container; docs/serving.md says how it is run.
FROM python:3.11-slim AS build
# an index with the CPU build of torch keeps the image small: --build-arg PIP_INDEX_URL=...
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/scaseg \
    && /opt/scaseg/bin/pip install --no-cache-dir -c constraints.txt ".[serve]"

FROM python:3.11-slim
COPY --from=build /opt/scaseg /opt/scaseg
# nothing is written but uploads on their way, to /tmp; no user of this number needs to exist
ENV PATH=/opt/scaseg/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /models
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
# the token comes by -e SCASEG_TOKEN: without one it refuses to listen beyond the container
ENTRYPOINT ["scaseg", "serve", "--host", "0.0.0.0", "--port", "8000", "--drain", "5"]
